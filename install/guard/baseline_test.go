// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/report"
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

// TestAddressesOf decides the rules of a pod that was captured without IPv6 as if an address
// that came later were none.
func TestAddressesOf(t *testing.T) {
	t.Parallel()
	ipv4, ipv6 := netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8::2")
	for stamp, want := range map[string][]netip.Addr{
		"": {ipv4, ipv6}, stampToday: {ipv4, ipv6},
		strings.Replace(stampToday, "ipv4", "ipv4,ipv6", 1):         {ipv4, ipv6},
		strings.Replace(stampToday, "ipv4", "ipv4,ipv6=refused", 1): {ipv4},
	} {
		all := []netip.Addr{ipv4, ipv6}
		if got := (baseline{Stamp: stamp}).addressesOf(all); !slices.Equal(got, want) || !slices.Equal(all, []netip.Addr{ipv4, ipv6}) {
			t.Errorf("%q: %v of %v, want %v", stamp, got, all, want)
		}
	}
}
