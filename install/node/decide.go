// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"slices"

	"github.com/capture-cni/capture-cni/install/host"
)

// decide returns the mode in which the entry should be. It refuses a mode that another
// mesh's plugin or the runtime's configuration rules out. For Auto it decides on the mode;
// after an error that stays Auto.
func (n *Node) decide(ctx context.Context, net *host.Dir, entry []byte) (Mode, error) {
	others, mode, err := n.settings.besideOthers(net, n.mode)
	if err == nil || len(others) > 0 {
		n.logOthers(others)
	}
	if err != nil || mode != n.mode {
		return mode, err
	}
	switch n.mode {
	case Owned:
		reported, source := runtimeConfigOf(ctx, n.settings, n.runtime)
		return mode, reported.checkMaxConfNum(Owned, source)
	case Auto:
		loaded, err := n.tryDropIn(ctx, net, entry)
		if err != nil {
			return mode, err
		}
		n.mode = Insert
		if loaded {
			n.mode = DropIn
		}
		return n.decide(ctx, net, entry) // istio-cni may have come while the agent asked the runtime
	}
	return mode, nil
}

// tryDropIn places a drop-in and reports whether the runtime has loaded it. PlaceEntry
// removes one that it has not, as an entry of another mode.
func (n *Node) tryDropIn(ctx context.Context, net *host.Dir, entry []byte) (loaded bool, err error) {
	p, err := findPrimary(net)
	if err != nil {
		return false, err
	}
	_, ownedErr := net.Read(ownedName)
	if p.list.Ours() > 0 || ownedErr == nil || !n.mayLoadDropIn(ctx) {
		return false, nil // the first two: the runtime may have loaded another entry of capture-cni
	}
	if err := (dropIn{}).place(net, entry); err != nil {
		return false, nil // the list forbids drop-ins, or it can't be written
	}
	return n.loadsDropIn(ctx)
}

// logOthers logs the plugins of other meshes once per change.
func (n *Node) logOthers(others []otherMesh) {
	if slices.Equal(n.others, others) {
		return
	}
	for _, other := range others {
		what, do := other.describe()
		n.log.Warn("another mesh's plugin is in the list", "entry", other.decision, "problem", what, "do", do)
	}
	if len(others) == 0 {
		n.log.Info("no other mesh's plugin is in the list any more")
	}
	n.others = others
}
