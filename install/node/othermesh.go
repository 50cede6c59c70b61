// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"

	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/host"
)

// otherMesh is another mesh's plugin in the list that the runtime loads, and what the
// agent does with its own entry next to it.
type otherMesh struct {
	file     string
	plugin   string
	ambient  bool
	decision decision
	kept     Mode // of the entry that was there already
}

type decision string

const (
	allowed decision = "allowed" // the agent writes its entry
	refused decision = "refused" // the agent writes no entry
	kept    decision = "kept"    // an entry was there already: it stays, up to date
)

// besideOthers returns the plugins of other meshes in the list that the runtime loads,
// and the mode in which the agent may write its entry: the given one or, next to
// istio-cni, that of the entry which is there already. Error: there is no list yet, or
// there are plugins next to which the agent must write no entry.
func (s Settings) besideOthers(net *host.Dir, mode Mode) (others []otherMesh, allowedMode Mode, err error) {
	if mode.underMultus() {
		return nil, mode, nil // the list that the runtime loads is elsewhere
	}
	p, err := findPrimary(net)
	if err != nil {
		return nil, mode, err
	}
	for _, plugin := range p.list.Plugins {
		if plugin.OtherMesh() {
			others = append(others, s.decideBeside(plugin, p, net))
		}
	}
	for _, other := range others {
		switch other.decision {
		case refused:
			what, do := other.describe()
			return others, mode, fmt.Errorf("%s: %s", what, do)
		case kept:
			mode = other.kept
		}
	}
	return others, mode, nil
}

// decideBeside decides what the agent does next to a plugin. istio-cni captures the same
// pods as capture-cni, others only pods with a proxy of their own.
func (s Settings) decideBeside(plugin conflist.Plugin, p primary, net *host.Dir) otherMesh {
	other := otherMesh{file: p.file, plugin: conflist.Shown(plugin.Type), ambient: plugin.Ambient, decision: allowed}
	if !plugin.IsIstioCNI() || s.BesideIstioCNI && !plugin.Ambient {
		return other
	}
	other.decision = refused
	if mode, found := standingMode(net, p); found {
		other.decision, other.kept = kept, mode
	}
	return other
}

// standingMode returns the mode of an entry that the runtime calls already, the first in
// the runtime's order.
func standingMode(net *host.Dir, p primary) (mode Mode, found bool) {
	if found, _ := net.Has(ownedName); found {
		return Owned, true
	}
	if !p.conf && p.list.Ours() > 0 {
		return Insert, true
	}
	directory, err := net.Sub(p.list.Name, false)
	if err != nil {
		return "", false
	}
	defer directory.Close()
	found, _ = directory.Has(dropInName)
	return DropIn, found
}

// describe returns what follows from the plugin, and what to do next.
func (o otherMesh) describe() (what, do string) {
	const (
		retire     = "remove istio-cni (deploy/guides/migrate-istio-cni.md)"
		migrate    = ", or set besideIstioCNI (--beside-istio-cni) to migrate from it"
		notAmbient = "remove capture-cni, or disable ambient mode in istio-cni"
		twice      = ": a pod that both plugins capture does not start"
		stays      = ", and an entry of capture-cni was there already"
	)
	what = fmt.Sprintf("%s, which the runtime loads, has the entry of %s", o.file, o.plugin)
	if o.ambient {
		what += " with ambient mode enabled, which captures ambient pods and those with sidecars"
	}
	switch {
	case o.decision == allowed && !conflist.Plugin{Type: o.plugin}.IsIstioCNI():
		return what + ", which captures pods with a proxy of its own", "none of its pods may also have istio-proxy"
	case o.decision == allowed:
		return what + ", and besideIstioCNI is set" + twice, retire
	case o.decision == refused && o.ambient:
		return what, notAmbient
	case o.decision == refused:
		return what + twice, retire + migrate
	case o.ambient:
		return what + stays + twice, notAmbient
	case o.kept == Owned:
		return what + stays + ": " + ownedName + ", which leaves istio-cni out", retire
	default:
		return what + stays + twice, retire
	}
}
