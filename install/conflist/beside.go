// SPDX-License-Identifier: Apache-2.0

package conflist

import (
	"errors"
	"fmt"

	"github.com/capture-cni/capture-cni/install/report"
)

// Other is istio-cni or another mesh's plugin in a list that the runtime may load, with the agent's
// decision whether to write capture-cni's entry next to it.
type Other struct {
	file     string
	Plugin   string
	ambient  bool
	Decision decision
	kept     report.Mode // mode of the existing entry, for the decision kept
}

type decision string

const (
	allowed decision = "allowed" // the agent writes its entry
	Refused decision = "refused" // the agent writes no entry
	kept    decision = "kept"    // the agent updates its existing entry
)

// Beside returns istio-cni and the plugins of other meshes in the lists that the runtime may load, and
// the mode in which the agent may write its entry. This is the given mode, except that an existing entry
// keeps its mode next to an istio-cni that forbids a new one. Beside returns an error if there is no
// valid list, if a list's CNI version permits no entry, if a list has no interface plugin, or if
// istio-cni forbids the entry. Under Multus, it examines no list.
func Beside(net Net, mode report.Mode, allowIstioCNI bool) (others []Other, allowedMode report.Mode, err error) {
	if mode.UnderMultus() {
		return nil, mode, nil // under Multus, net is not the directory of the list that the runtime loads
	}
	found, err := Primaries(net)
	for _, p := range found {
		err = errors.Join(err, p.CheckVersion())
		for _, plugin := range p.List.Plugins {
			if plugin.OtherMesh() {
				others = append(others, decideBeside(plugin, p, net, allowIstioCNI))
			}
		}
	}
	if err != nil {
		return nil, mode, err
	}
	for _, other := range others {
		switch other.Decision {
		case Refused:
			return others, mode, errors.New(other.Finding().Advised())
		case kept:
			mode = other.kept
		}
	}
	return others, mode, nil
}

// decideBeside decides whether the agent may write its entry next to another plugin that captures. Only
// istio-cni can forbid the entry, because by default it captures the same pods as capture-cni. Other
// meshes' plugins capture only pods with their own proxies.
func decideBeside(plugin Plugin, p primary, net Net, allowIstioCNI bool) Other {
	other := Other{file: p.File, Plugin: Shown(plugin.Type), ambient: plugin.Ambient, Decision: allowed}
	if !plugin.IsIstioCNI() || allowIstioCNI && !plugin.Ambient {
		return other
	}
	other.Decision = Refused
	if mode, found := standingMode(net, p); found {
		other.Decision, other.kept = kept, mode
	}
	return other
}

// standingMode returns the mode of an existing entry, and whether there is one. If there are several
// entries, it returns the mode of the one that the runtime would call first.
func standingMode(net Net, p primary) (mode report.Mode, found bool) {
	if found, _ := net.Has(OwnedName); found {
		return report.Owned, true
	}
	if !p.conf && p.List.HasOurs() {
		return report.Insert, true
	}
	directory, err := net.Sub(p.List.Name, false)
	if err != nil {
		return "", false
	}
	defer directory.Close()
	found, _ = directory.Has(DropInName)
	return report.DropIn, found
}

// CapturesTwice returns a warning for each istio-cni plugin that the runtime calls next to an entry of
// this mode, because both may capture the same pods. The list of mode owned omits istio-cni, except with
// ambient mode.
func CapturesTwice(others []Other, mode report.Mode) (warnings report.Findings) {
	for _, other := range others {
		if (mode != report.Owned || other.ambient) && other.Decision != Refused && (Plugin{Type: other.Plugin}).IsIstioCNI() {
			warning := other.Finding()
			warning.Severity = report.Warning
			warnings = append(warnings, warning)
		}
	}
	return warnings
}

var severities = map[decision]report.Severity{allowed: report.Note, kept: report.Note, Refused: report.Problem}

// Finding returns a finding about the plugin. It is a problem if the agent writes no entry because of
// the plugin, and otherwise a note.
func (o Other) Finding() report.Finding {
	code, what, do := o.describe()
	return report.Finding{Code: code, Severity: severities[o.Decision], Reason: what, Next: do}
}

func (o Other) describe() (code report.Code, what, do string) {
	const (
		retire     = "remove istio-cni (deploy/guides/migrate-istio-cni.md)"
		migrate    = ", or set besideIstioCNI (--beside-istio-cni) to migrate from it"
		notAmbient = "remove capture-cni, or disable ambient mode in istio-cni"
		twice      = ": a pod that both plugins capture does not start"
		stays      = ", and an entry of capture-cni was there already"
	)
	what = fmt.Sprintf("%s, which the runtime loads, has the entry of %s", o.file, o.Plugin)
	if o.ambient {
		what += " with ambient mode enabled, which captures ambient pods and those with sidecars"
	}
	switch {
	case o.Decision == allowed && !Plugin{Type: o.Plugin}.IsIstioCNI():
		return report.OtherMesh, what + ", which captures pods with a proxy of its own",
			"no pod may have proxies of both meshes; netconf.meshes says whose pods capture-cni captures"
	case o.Decision == allowed:
		return report.BesideIstioCNI, what + ", and besideIstioCNI is set" + twice, retire
	case o.Decision == Refused && o.ambient:
		return report.AmbientMode, what, notAmbient
	case o.Decision == Refused:
		return report.BesideIstioCNI, what + twice, retire + migrate
	case o.ambient:
		return report.AmbientMode, what + stays + twice, notAmbient
	case o.kept == report.Owned:
		return report.BesideIstioCNI, what + stays + ": " + OwnedName + ", which leaves istio-cni out", retire
	default:
		return report.BesideIstioCNI, what + stays + twice, retire
	}
}
