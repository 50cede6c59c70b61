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

// baseline is the state in which ADD or a repair left a sandbox's network namespace. A later difference
// from this state is drift.
type baseline struct {
	Stamp   string         `json:"stamp"` // empty if the baseline is unknown
	Backend config.Backend `json:"backend"`
	Digest  string         `json:"digest,omitempty"` // digest of the rules; empty until the guard has read them
	// Unconfirmed means that the first examination found these rules, which another version or
	// configuration wrote, and that no record of an ADD confirms them.
	Unconfirmed bool `json:"unconfirmed,omitempty"`
	// Reported means that the agent has the record that the pod is outdated. Without this field, each
	// guard would send a record for every pod after an upgrade.
	Reported bool `json:"reported,omitempty"`
}

func (b baseline) isKnown() bool { return b.Stamp != "" }

// confirmBy replaces an unknown or unconfirmed baseline with the record of the sandbox's ADD. The agent
// may write this record after the first examination.
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

// addressesOf returns the namespace's addresses that decide about the rules. It omits addresses of a
// family that the pod got after it was captured without this family.
func (b baseline) addressesOf(all []netip.Addr) []netip.Addr {
	if capture.StampedIPv6(b.Stamp) != capture.Refused {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), netip.Addr.Is6)
}

// baselineOf returns a baseline that describes the namespace's current state.
func baselineOf(o kernel.Observation) baseline {
	return baseline{Stamp: o.Stamp, Backend: o.Backend, Digest: o.Digest}
}
