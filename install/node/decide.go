// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"slices"

	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/report"
)

// decide returns the mode to use. Except under Multus, it returns an error if there is no valid list, or
// if the list, istio-cni or, in mode owned, the runtime's max_conf_num forbids the entry. For Auto, it
// chooses a mode, or returns Auto and an error if it can't choose yet.
func (n *Node) decide(ctx context.Context, net conflist.Net, text []byte) (report.Mode, error) {
	others, mode, err := conflist.Beside(net, n.Mode, n.Settings.BesideIstioCNI)
	if err == nil || len(others) > 0 {
		n.logOthers(others)
	}
	if err != nil || mode != n.Mode {
		return mode, err
	}
	switch n.Mode {
	case report.Owned:
		reported, source := cri.ReadCNISettings(ctx, n.Settings.Root, n.Runtime)
		return mode, conflist.CheckMaxConfNum(report.Owned, reported.MaxConfNum, source)
	case report.Auto:
		loaded, err := n.tryDropIn(ctx, net, text)
		if err != nil {
			return mode, err
		}
		n.Mode = conflist.WithoutDropIn(net)
		if loaded {
			n.Mode = report.DropIn
		}
		return n.decide(ctx, net, text) // istio-cni may have been installed in the meantime
	}
	return mode, nil
}

// tryDropIn places a drop-in, and reports whether the runtime has loaded it. It places none if the
// runtime loads no drop-ins, or if the runtime's report could not show that it has loaded this one.
// PlaceEntry later removes a drop-in that the runtime has not loaded, like any entry of another mode.
func (n *Node) tryDropIn(ctx context.Context, net conflist.Net, text []byte) (loaded bool, err error) {
	p, err := conflist.FindPrimary(net)
	if err != nil {
		return false, err
	}
	_, ownedErr := net.Read(conflist.OwnedName)
	if p.List.HasOurs() || ownedErr == nil { // the runtime may have loaded another entry of capture-cni
		return false, nil
	}
	if n.Runtime == nil || net.Runtime.HidesDropIns() {
		return false, nil
	}
	if err := conflist.In(report.DropIn).Place(net, text); err != nil {
		return false, nil // the list forbids drop-ins, or the file can't be written
	}
	return loadsDropIn(ctx, n.Runtime.CNIConfig)
}

// logOthers logs istio-cni and other meshes' plugins in the list, if they have changed.
func (n *Node) logOthers(others []conflist.Other) {
	if slices.Equal(n.Others, others) {
		return
	}
	for _, other := range others {
		found := other.Finding()
		n.log.Warn("istio-cni or another mesh's plugin is in the list", "entry", other.Decision, "problem", found.Reason, "do", found.Next)
	}
	if len(others) == 0 {
		n.log.Info("neither istio-cni nor another mesh's plugin is in the list any more")
	}
	n.Others = others
}
