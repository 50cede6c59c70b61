// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"net/netip"
	"slices"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/kernel"
	"github.com/capture-cni/capture-cni/install/telemetry"
	"github.com/capture-cni/capture-cni/plugin/capture"
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

// addressesOf returns those of a namespace's addresses by which rules are decided: not
// those of a family that came after the pod was captured without it.
func (b baseline) addressesOf(all []netip.Addr) []netip.Addr {
	if capture.StampedIPv6(b.Stamp) != capture.Refused {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), netip.Addr.Is6)
}

// baselineOf returns the baseline that is the namespace's current state.
func baselineOf(o kernel.Observation) baseline {
	return baseline{Stamp: o.Stamp, Backend: o.Backend, Digest: o.Digest}
}
