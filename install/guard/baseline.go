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

// addressesOf returns those addresses of the namespace that decide about the rules. It omits all IPv6
// addresses of a pod whose rules refuse IPv6, because the pod had no usable one when the rules were
// written.
func (b baseline) addressesOf(all []netip.Addr) []netip.Addr {
	if capture.StampedIPv6(b.Stamp) != capture.Refused {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), netip.Addr.Is6)
}

func baselineOf(o kernel.Observation) baseline {
	return baseline{Stamp: o.Stamp, Backend: o.Backend, Digest: o.Digest}
}
