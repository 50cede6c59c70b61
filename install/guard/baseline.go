// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"net/netip"
	"slices"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/history"
	"github.com/capture-cni/capture-cni/install/kernel"
	"github.com/capture-cni/capture-cni/install/terms"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
	"github.com/capture-cni/capture-cni/plugin/podnet"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// baseline is the state in which ADD or a repair left a sandbox's network
// namespace. A difference from it is drift.
type baseline struct {
	Stamp   string         `json:"stamp"` // empty for an unknown baseline
	Backend config.Backend `json:"backend"`
	Digest  string         `json:"digest,omitempty"` // of the rules; empty until they are read
	// Unconfirmed is a baseline that the first examination found, of another version
	// or configuration, without a record of an ADD.
	Unconfirmed bool `json:"unconfirmed,omitempty"`
	// Reported is set once the agent has the record that the pod is outdated: after an
	// upgrade each guard would send one for every pod.
	Reported bool `json:"reported,omitempty"`
}

func (b baseline) isKnown() bool { return b.Stamp != "" }

// confirmBy replaces an unknown or unconfirmed baseline by the record of the
// sandbox's ADD. The agent may write that after the first examination.
func (b *baseline) confirmBy(historyDir string, sandbox cri.Sandbox) {
	if b.isKnown() && !b.Unconfirmed || historyDir == "" {
		return
	}
	add, err := history.Last(historyDir, sandbox.UID)
	if err != nil || add.Sandbox != sandbox.ID || add.Verdict != record.Captured || !capture.IsStamp(add.Stamp) {
		return
	}
	if b.Stamp != add.Stamp {
		*b = baseline{Stamp: add.Stamp, Backend: config.Backend(add.Backend)}
	}
	b.Unconfirmed = false
}

// addressesOf returns the addresses by which rules are decided: those of a namespace,
// without a family that came after the pod was captured without it.
func (b baseline) addressesOf(netns *podnet.Namespace) func() ([]netip.Addr, error) {
	refused := capture.StampedIPv6(b.Stamp) == capture.Refused
	return func() ([]netip.Addr, error) {
		addresses, err := netns.Addresses()
		return slices.DeleteFunc(addresses, func(a netip.Addr) bool { return refused && a.Is6() }), err
	}
}

// set sets the baseline to the namespace's current state.
func (b *baseline) set(ctx context.Context, netns *podnet.Namespace, state netfilter.State) error {
	digest, err := kernel.Digest(ctx, netns, state.Backend)
	if err != nil {
		return err
	}
	*b = baseline{Stamp: state.Stamp, Backend: state.Backend, Digest: digest}
	return nil
}

// matches reports whether the baseline is complete, confirmed and of this state.
func (b baseline) matches(state netfilter.State) bool {
	return b.Stamp == state.Stamp && b.Backend == state.Backend && kernel.Comparable(b.Digest) && !b.Unconfirmed
}

// checkOutdated compares rules of another version, which the guard can't render,
// with the baseline. The first examination makes them the baseline.
func (b *baseline) checkOutdated(ctx context.Context, netns *podnet.Namespace, state netfilter.State) Finding {
	if b.isKnown() && b.Stamp != state.Stamp {
		return drifted("its rules have stamp %q, and it was captured with %q", state.Stamp, b.Stamp)
	}
	now := *b
	if err := now.set(ctx, netns, state); err != nil {
		return unreadable(err)
	}
	if kernel.Comparable(b.Digest) && b.Digest != now.Digest {
		return drifted("its rules are those of another version or configuration and were changed: %s", state.Stamp)
	}
	now.Unconfirmed = !b.isKnown() || b.Unconfirmed
	*b = now
	return Finding{State: terms.Outdated, Reason: "its rules are those of another version or configuration: " + state.Stamp}
}
