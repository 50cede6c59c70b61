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

// baseline is the state in which an ADD or a repair left a sandbox's network namespace. A later
// difference from it is drift.
type baseline struct {
	Stamp   string         `json:"stamp"` // empty if the baseline is unknown
	Backend config.Backend `json:"backend"`
	Digest  string         `json:"digest,omitempty"` // digest of the rules; empty until the guard has read them
	// Unconfirmed means that the guard found these rules of another version or configuration in its
	// first examination, and that no record of an ADD confirms them.
	Unconfirmed bool `json:"unconfirmed,omitempty"`
	// Reported means that the agent has a record that the pod is outdated. Without this field, each new
	// guard would send a record for every pod after an upgrade.
	Reported bool `json:"reported,omitempty"`
}

func (b baseline) isKnown() bool { return b.Stamp != "" }

// confirmBy replaces an unknown or unconfirmed baseline by the record of the sandbox's ADD, if the
// agent has this record. The agent may write the record only after the first examination.
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

// addressesOf returns those addresses of the namespace that decide about the rules. It omits IPv6
// addresses that the pod got after it was captured with refused IPv6.
func (b baseline) addressesOf(all []netip.Addr) []netip.Addr {
	if capture.StampedIPv6(b.Stamp) != capture.Refused {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), netip.Addr.Is6)
}

func baselineOf(o kernel.Observation) baseline {
	return baseline{Stamp: o.Stamp, Backend: o.Backend, Digest: o.Digest}
}
