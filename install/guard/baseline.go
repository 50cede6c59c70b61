// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/kernel"
	"github.com/capture-cni/capture-cni/install/telemetry"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// baseline describes the rules that an ADD, a repair or an update wrote into a sandbox's network
// namespace or, if that is unknown, the rules that the guard found there first. If the namespace later
// has rules that the guard can compare, and that are neither these nor the desired ones, the pod has
// drifted.
type baseline struct {
	Stamp   string         `json:"stamp"` // empty if the baseline is unknown
	Backend config.Backend `json:"backend"`
	Digest  string         `json:"digest,omitempty"` // digest of the rules; empty until the guard has read them
	// Unconfirmed means that the guard found these rules of another version or configuration when it
	// first examined the pod, and that no record of an ADD confirms them.
	Unconfirmed bool `json:"unconfirmed,omitempty"`
	// Reported means that the agent was sent a record that the pod is outdated. Without this field, each
	// new guard would send another record for every outdated pod.
	Reported bool `json:"reported,omitempty"`
}

func (b baseline) isKnown() bool { return b.Stamp != "" }

// confirmBy sets an unknown baseline, and replaces or confirms an unconfirmed one, by the record of the
// sandbox's ADD, if the agent has written this record. Later examinations try again, because the agent
// may write the record late.
func (b *baseline) confirmBy(historyDir string, sandbox cri.Sandbox) {
	if b.isKnown() && !b.Unconfirmed {
		return
	}
	add, err := telemetry.LastRecord(historyDir, sandbox.UID)
	if err != nil || add.Sandbox != sandbox.ID || add.Verdict != record.Captured || !capture.IsStamp(add.Stamp) {
		return
	}
	if b.Stamp != add.Stamp {
		*b = baseline{Stamp: add.Stamp, Backend: config.Backend(add.Backend)}
	}
	b.Unconfirmed = false
}

// lostIPv6 stands for an IPv6 address that a pod has lost.
var lostIPv6 = netip.MustParseAddr("2001:db8::1")

// desired returns the desired state of an observed pod. The pod's addresses may have changed since its
// rules were written, but not the addresses at which its proxy listens. So a later address does not change
// how the rules treat IPv6, and a pod that has lost its IPv6 address keeps rules that depend on it. If the
// baseline is unknown, desired believes the observed stamp, except about a lost address.
func (b baseline) desired(a *asked, o kernel.Observation, update Update) (desired, error) {
	if a.refusal != nil {
		return desired{}, a.refusal
	}
	d, err := a.at(o.Addresses, update)
	stamp := cmp.Or(b.Stamp, o.Stamp)
	isSame := func(other desired) bool { return capture.StampedIPv6(other.stamp) == capture.StampedIPv6(stamp) }
	if err != nil || isSame(d) {
		return d, err
	}
	for _, isLate := range []func(netip.Addr) bool{netip.Addr.Is6, netip.Addr.Is4} {
		earlier, err := a.at(slices.DeleteFunc(slices.Clone(o.Addresses), isLate), update)
		if err == nil && isSame(earlier) {
			return earlier, nil
		}
	}
	earlier, err := a.at(append(slices.Clone(o.Addresses), lostIPv6), update)
	if err == nil && earlier.stamp == b.Stamp && !b.Unconfirmed {
		return earlier, nil
	}
	return d, nil
}

func baselineOf(o kernel.Observation) baseline {
	return baseline{Stamp: o.Stamp, Backend: o.Backend, Digest: o.Digest}
}
