// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/kernel"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
)

const (
	stampToday   = "capture-cni rules v5 ipv4 00112233445566778899aabbccddeeff"
	stampEarlier = "capture-cni rules v1 ipv4 00112233445566778899aabbccddeeff"
)

// observed is what a visit to a pod with rules of today finds.
func observed(changes ...func(*kernel.Observation)) (o kernel.Observation) {
	o.Backend, o.Stamp, o.Generation = config.NFTables, stampToday, 7
	o.Digest = "4:00"
	for _, change := range changes {
		change(&o)
	}
	return o
}

// TestJudge has a row for each finding about a namespace, and for each thing on which it
// depends.
func TestJudge(t *testing.T) {
	t.Parallel()
	type observation = func(*kernel.Observation)
	gone := func(o *kernel.Observation) { o.Backend, o.Stamp, o.Digest = "", "", "" }
	earlier := func(o *kernel.Observation) { o.Stamp = stampEarlier }
	unstamped := func(o *kernel.Observation) { o.Stamp = "without a stamp" }
	moved := func(o *kernel.Observation) { o.Digest = "4:01" }
	iptables := func(o *kernel.Observation) { o.Backend = config.IPTablesNFT }
	foreign := func(o *kernel.Observation) { o.Foreign = "nat/ISTIO_OUTPUT" }
	fault := func(err error) observation {
		return func(o *kernel.Observation) { o.RulesFault = fmt.Errorf("reading: %w", err) }
	}
	obstructed := func(o *kernel.Observation) { o.Obstruction = "notrack" }
	ipv6 := func(o *kernel.Observation) { o.Addresses = []netip.Addr{netip.MustParseAddr("2001:db8::2")} }
	today := baselineOf(observed())
	outdated := baselineOf(observed(earlier))
	unconfirmed := outdated
	unconfirmed.Unconfirmed = true
	undigested := baseline{Stamp: stampEarlier, Backend: config.NFTables}
	ofIPTables := baseline{Stamp: stampToday, Backend: config.IPTablesNFT}
	byAlias := baseline{Stamp: stampToday, Backend: config.IPTables}
	changing, tooLarge := nfnetlink.ErrChanging, nfnetlink.TooLarge{What: "rules", Limit: 5000}
	noPrograms, denied := capture.Refusal("no iptables"), errors.New("denied")
	unread := func(o *kernel.Observation) { o.ObstructionFault = denied }
	for _, tt := range []struct {
		name        string
		before      baseline
		happened    []observation
		differences []string
		edited      bool
		want        report.Code
		says        string
		after       baseline
	}{
		{"captured", today, nil, nil, false, report.Captured, "", today},
		{"captured, seen for the first time", baseline{}, nil, nil, false, report.Captured, "", today},
		{"captured, by a digest of another version of the guard", baseline{stampToday, config.NFTables, "2:01", false, false}, nil, nil, false, report.Captured, "", today},
		{"captured, unconfirmed before", baseline{stampToday, config.NFTables, today.Digest, true, false}, nil, nil, false, report.Captured, "", today},
		{"captured, by rules that were of another version", outdated, nil, nil, false, report.Captured, "", today},
		{"captured, next to another plugin", today, []observation{foreign}, nil, false, report.Captured, "", today},
		{"captured, next to another plugin, seen first", baseline{}, []observation{foreign}, nil, false, report.Captured, "", today},
		{"edited", today, nil, nil, true, report.Changed, "edited after its creation", today},
		{"IPv6, which its rules ignore", today, []observation{ipv6}, nil, false, report.Captured, "", today},

		{"no rules", today, []observation{gone}, nil, false, report.Uncaptured, "no rules of the plugin", today},
		{"no rules, another plugin's", baseline{}, []observation{gone, foreign}, nil, false, report.Foreign, "nat/ISTIO_OUTPUT", baseline{}},
		{"its rules replaced by another plugin's", today, []observation{gone, foreign}, nil, false, report.Uncaptured, "no rules", today},
		{"differences", today, nil, []string{"missing: a", "down: interface lo"}, false, report.Drifted, "missing: a; down: interface lo", today},
		{"differences, edited", today, nil, []string{"missing: a"}, true, report.Drifted, "missing: a", today},
		{"no rules, seen first", baseline{}, []observation{gone}, nil, false, report.Uncaptured, "no rules of the plugin", baseline{}},
		{"another backend", today, []observation{iptables}, nil, false, report.Drifted, "are in backend iptables-nft, and it was captured by nftables", today},
		{"another backend, not as desired", ofIPTables, nil, nil, false, report.Drifted, "are in backend nftables, and it was captured by iptables-nft", ofIPTables},
		{"no stamp", today, []observation{unstamped}, []string{"changed: chain stamp"}, false, report.Drifted, "changed: chain stamp", today},
		{"another stamp", today, []observation{earlier}, nil, false, report.Drifted, `have stamp "` + stampEarlier, today},

		{"earlier rules", baseline{}, []observation{earlier}, nil, false, report.Outdated, stampEarlier, unconfirmed},
		{"earlier rules, known", outdated, []observation{earlier}, nil, false, report.Outdated, stampEarlier, outdated},
		{"earlier rules, known without a record", unconfirmed, []observation{earlier}, nil, false, report.Outdated, stampEarlier, unconfirmed},
		{"earlier rules, known by a digest of 0.3.0", baseline{stampEarlier, config.NFTables, "2:01", false, false}, []observation{earlier}, nil, false, report.Outdated, stampEarlier, outdated},
		{"earlier rules, of a record", undigested, []observation{earlier}, nil, false, report.Outdated, stampEarlier, outdated},
		{"earlier rules, changed", outdated, []observation{earlier, moved}, nil, false, report.Drifted, "were changed: " + stampEarlier, outdated},
		{"earlier rules of another backend", outdated, []observation{earlier, iptables}, nil, false, report.Drifted, "are in backend", outdated},
		{"without the backend's programs", ofIPTables, []observation{iptables, fault(noPrograms)}, nil, false, report.Outdated, "whose programs the guard does not have", ofIPTables},
		{"by an alias", byAlias, []observation{iptables}, nil, false, report.Captured, "", baselineOf(observed(iptables))},
		{"by an alias, without the backend's programs", byAlias, []observation{iptables, fault(noPrograms)}, nil, false, report.Outdated, "whose programs", ofIPTables},
		{"by an alias, now another backend", byAlias, nil, nil, false, report.Drifted, "in backend nftables, and it was captured by iptables", byAlias},
		{"by an alias, no rules", byAlias, []observation{gone}, nil, false, report.Uncaptured, "no rules", byAlias},
		{"without programs, seen first", baseline{}, []observation{iptables, fault(noPrograms)}, nil, false, report.Unknown, "no iptables", baseline{}},

		{"too many rules", today, []observation{fault(tooLarge)}, nil, false, report.Drifted, tooLarge.Error(), today},
		{"too many chains", today, []observation{gone, fault(tooLarge)}, nil, false, report.Drifted, tooLarge.Error(), today},
		{"rules that keep changing", today, []observation{fault(changing)}, nil, false, report.Drifted, changing.Error(), today},
		{"rules that can't be read", today, []observation{fault(denied)}, nil, false, report.Unknown, "reading: denied", today},
		{"earlier rules, not readable", outdated, []observation{earlier, fault(denied)}, nil, false, report.Unknown, "reading: denied", outdated},
		{"a namespace not readable", today, []observation{gone, fault(denied)}, nil, false, report.Unknown, "reading: denied", today},

		{"obstructed", today, []observation{obstructed}, nil, false, report.Obstructed, "notrack", today},
		{"obstructed, edited", today, []observation{obstructed}, nil, true, report.Obstructed, "notrack; also, its annotations were edited", today},
		{"obstructed, outdated", outdated, []observation{earlier, obstructed}, nil, false, report.Obstructed, "notrack; also, its rules are those of another version", outdated},
		{"obstructed, drifted", today, []observation{obstructed}, []string{"missing: a"}, false, report.Drifted, "missing: a", today},
		{"obstructed, no rules", today, []observation{gone, obstructed}, nil, false, report.Uncaptured, "no rules", today},
		{"obstruction unknown", today, []observation{unread}, nil, false, report.Unknown, "denied", today},
		{"drifted, obstruction unknown", today, []observation{unread}, []string{"missing: a"}, false, report.Drifted, "missing: a", today},
	} {
		got, after := judge(desired{stamp: stampToday, changed: tt.edited}, tt.before, observed(tt.happened...), tt.differences)
		if got.Code != tt.want || !strings.Contains(got.Reason, tt.says) || (got.Reason == "") != (tt.says == "") {
			t.Errorf("%s: %+v, want %s: %s", tt.name, got, tt.want, tt.says)
		}
		if after != tt.after {
			t.Errorf("%s: the baseline is %+v, want %+v", tt.name, after, tt.after)
		}
	}
}

// TestJudgeReworded judges rules that differ from the desired ones only in the words of their
// comments, and so in their stamp. Whoever wrote them, the pod is captured.
func TestJudgeReworded(t *testing.T) {
	t.Parallel()
	o := observed(func(o *kernel.Observation) { o.Stamp = stampEarlier })
	known := baselineOf(o)
	unconfirmed, recorded := known, baseline{Stamp: stampToday, Backend: config.NFTables}
	unconfirmed.Unconfirmed = true
	updated, legacy := known, known // an update whose baseline was not stored; of iptables-legacy, rules may be left
	updated.Backend, legacy.Backend = config.IPTablesNFT, config.IPTablesLegacy
	for _, tt := range []struct {
		before      baseline
		differences []string
		edited      bool
		want        report.Code
		after       baseline
	}{
		{known, nil, false, report.Captured, known},
		{known, nil, true, report.Changed, known},
		{known, []string{"down: interface lo"}, false, report.Drifted, known},
		{baseline{}, nil, false, report.Captured, unconfirmed},
		{recorded, nil, false, report.Drifted, recorded},
		{updated, nil, false, report.Captured, known},
		{legacy, nil, false, report.Drifted, legacy},
	} {
		got, after := judge(desired{stamp: stampToday, reference: o.Digest, changed: tt.edited}, tt.before, o, tt.differences)
		if got.Code != tt.want || after != tt.after {
			t.Errorf("%+v: %+v, %+v, want %s", tt, got, after, tt.want)
		}
	}
}

// TestJudgeLateAddress judges a pod whose rules refuse IPv6 by the addresses that it has now.
func TestJudgeLateAddress(t *testing.T) {
	t.Parallel()
	stamp := strings.Replace(stampToday, "ipv4", "ipv4,ipv6=refused", 1)
	for _, tt := range []struct {
		address string
		edited  bool
		want    report.Code
		says    string
	}{
		{"192.0.2.2", false, report.Captured, ""},
		{"fe80::2", false, report.Captured, ""},
		{"2001:db8::2", false, report.Changed, "(Istio: ISTIO_DUAL_STACK=true), which netconf.ipv6=never overrides"},
		{"2001:db8::2", true, report.Changed, "its annotations were edited"},
	} {
		o := observed(func(o *kernel.Observation) {
			o.Stamp, o.Addresses = stamp, []netip.Addr{netip.MustParseAddr(tt.address)}
		})
		got, _ := judge(desired{stamp: stamp, changed: tt.edited}, baselineOf(o), o, nil)
		if got.Code != tt.want || !strings.Contains(got.Reason, tt.says) {
			t.Errorf("%s: %+v, want %s: %s", tt.address, got, tt.want, tt.says)
		}
	}
}
