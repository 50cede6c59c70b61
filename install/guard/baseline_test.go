// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/kernel"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/lookup"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// TestConfirmBy believes the record of the sandbox's own ADD, if it captured the pod, and
// only while the baseline is unknown or was adopted without a record.
func TestConfirmBy(t *testing.T) {
	t.Parallel()
	const stamp, other = stampToday, stampEarlier
	adopted := baseline{Stamp: other, Backend: config.IPTablesNFT, Digest: "2:00", Unconfirmed: true}
	known, same := adopted, adopted
	known.Unconfirmed, same.Stamp = false, stamp
	confirmed := same
	confirmed.Unconfirmed = false
	fresh := baseline{Stamp: stamp, Backend: config.NFTables}
	for name, tt := range map[string]struct {
		before baseline
		change func(*record.Record)
		want   baseline
	}{
		"unknown":             {baseline{}, func(*record.Record) {}, fresh},
		"adopted":             {adopted, func(*record.Record) {}, fresh},
		"adopted as recorded": {same, func(*record.Record) {}, confirmed},
		"known":               {known, func(*record.Record) {}, known},
		"another sandbox":     {adopted, func(r *record.Record) { r.Sandbox = "another" }, adopted},
		"another pod":         {adopted, func(r *record.Record) { r.Pod.UID = "another" }, adopted},
		"failed":              {adopted, func(r *record.Record) { r.Verdict = record.Failed }, adopted},
		"without a stamp":     {adopted, func(r *record.Record) { r.Stamp = "" }, adopted},
	} {
		w := examined("web", report.Finding{})
		add := record.Record{Pod: refOf(w.sandbox), Sandbox: w.sandbox.ID, Verdict: record.Captured, Backend: "nftables", Stamp: stamp}
		tt.change(&add)
		got := tt.before
		if got.confirmBy(writeHistory(t, add), w.sandbox); got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}

// TestDesiredAfterLateAddresses has pods whose addresses changed after their rules were written. Rules never
// become weaker by an address that a pod got, and rules that an address explains stay when the pod loses it.
func TestDesiredAfterLateAddresses(t *testing.T) {
	t.Parallel()
	const refused, captured, ignored = string(capture.Refused), string(capture.Captured), string(capture.Ignored)
	settings := config.DefaultSettings()
	always := settings
	always.IPv6 = config.IPv6Always
	n, _ := newPodNode(t, Settings{})
	decided := func(settings config.Settings) *asked {
		a, err := newAsked(&lookup.Answer{Pod: &n.pod}, n.sandbox, settings)
		lab.Check(t, err)
		return a
	}
	ipv4, ipv6, linkLocal := netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8::2"), netip.MustParseAddr("fe80::2")
	only4, only6, both := []netip.Addr{ipv4, linkLocal}, []netip.Addr{ipv6}, []netip.Addr{ipv4, ipv6}
	const known, unconfirmed, unknown = "known", "unconfirmed", "unknown"
	for _, tt := range []struct {
		at       []netip.Addr // when the rules were written
		by       config.Settings
		baseline string
		now      []netip.Addr
		settings config.Settings
		want     string
	}{
		{only4, settings, known, only4, settings, refused},
		{only4, settings, known, both, settings, refused},
		{only4, settings, unconfirmed, both, settings, refused},
		{only4, settings, unknown, both, settings, refused},
		{only4, settings, unknown, both, always, refused},
		{only4, settings, known, only6, settings, captured},
		{only6, settings, known, both, settings, captured},
		{only6, settings, unknown, both, settings, captured},
		{only6, settings, known, only4, settings, refused},
		{both, settings, known, both, settings, ignored},
		{both, settings, known, only4, settings, ignored},
		{both, settings, unconfirmed, only4, settings, refused},
		{both, settings, unknown, only4, settings, refused},
		{both, settings, known, both, always, captured},
		{both, always, known, only4, always, captured},
		{both, settings, "none", both, settings, ignored},
	} {
		before, err := decided(tt.by).at(tt.at, UpdateNever)
		lab.Check(t, err)
		o := observed(func(o *kernel.Observation) { o.Stamp, o.Addresses = before.stamp, slices.Clone(tt.now) })
		var b baseline
		switch tt.baseline {
		case known, unconfirmed:
			b = baselineOf(o)
			b.Unconfirmed = tt.baseline == unconfirmed
		case "none":
			o.Stamp = ""
		}
		got, err := b.desired(decided(tt.settings), o, UpdateNever)
		if ipv6 := capture.StampedIPv6(got.stamp); err != nil || string(ipv6) != tt.want || got.stamp == "" || !slices.Equal(o.Addresses, tt.now) {
			t.Errorf("%v by %s, %s, now %v by %s: IPv6 is %q, want %q; %v",
				tt.at, tt.by.IPv6, tt.baseline, tt.now, tt.settings.IPv6, ipv6, tt.want, err)
		}
	}
	if d, err := (baseline{Stamp: "capture-cni rules v5 ipv4,ipv6=refused 00"}).desired(decided(settings), observed(), UpdateNever); err == nil {
		t.Errorf("a pod without addresses: %+v", d)
	}
}
