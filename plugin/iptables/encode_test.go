// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// TestListsOfIPTables splits lists into as many rules as they need.
func TestListsOfIPTables(t *testing.T) {
	t.Parallel()
	ports := make([]uint16, 31)
	for i := range ports {
		ports[i] = uint16(i + 1)
	}
	rs := capture.Ruleset{Chains: []capture.Chain{{Table: capture.NAT, Hook: capture.Output, Name: "OUTPUT", Rules: []capture.Rule{{
		Match: capture.Match{
			Protocol: capture.TCP,
			In:       capture.List[string]{Name: "i", Values: []string{"a", "b"}},
			DstPort:  capture.List[capture.PortRange]{Name: "p", Values: capture.Ports(ports...)},
		},
		Do:  capture.Action{Verdict: capture.Return},
		Why: "why",
	}}}}}
	text := RestoreText(rs, capture.IPv4, nil)
	if got := strings.Count(text, "-A OUTPUT"); got != 6 {
		t.Errorf("%d rules, want 2 interfaces x 3 groups of ports:\n%s", got, text)
	}
	for _, rule := range []string{
		`-A OUTPUT -i a -p tcp -m multiport --dports 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15 -m comment --comment "why" -j RETURN`,
		"-A OUTPUT -i b -p tcp -m multiport --dports 31 -j RETURN",
	} {
		if !strings.Contains(text, rule+"\n") {
			t.Errorf("%q is missing in\n%s", rule, text)
		}
	}
}

// TestExpanded compares the number that limits a pod's lists with the rules that are written.
func TestExpanded(t *testing.T) {
	t.Parallel()
	numbers := make([]uint32, 5)
	for _, n := range []int{0, 1, 2, 7, 8, 15, 16, 46} {
		ports := make([]capture.PortRange, n)
		for i := range ports {
			ports[i] = capture.PortRange{First: uint16(10 * i), Last: uint16(10 * i)}
		}
		for _, ranged := range []bool{false, true} {
			if ranged && n > 0 {
				ports[n-1].Last++
			}
			m := capture.Match{
				Protocol: capture.TCP, DstPort: capture.List[capture.PortRange]{Values: ports}, GID: capture.List[uint32]{Values: numbers[:n%5]},
				In: capture.List[string]{Values: make([]string, n)}, Out: capture.List[string]{Values: make([]string, n/2)},
			}
			m.Dst.Values = make([]netip.Prefix, n%3)
			if got, want := m.Expanded(), len(matchArguments(m)); got != want {
				t.Errorf("%d of each list, ranges %v: counted as %d rules, and %d are written", n, ranged, got, want)
			}
		}
	}
}

func TestCreated(t *testing.T) {
	t.Parallel()
	for note, want := range map[string]created{
		"made: table PREROUTING OUTPUT": {table: true, chains: []capture.Hook{capture.Prerouting, capture.Output}},
		"made: OUTPUT":                  {chains: []capture.Hook{capture.Output}},
		"made: table":                   {table: true},
		"":                              {},
	} {
		rs := capture.Ruleset{Chains: []capture.Chain{{Table: capture.NAT, Hook: capture.Output, Name: "OUTPUT", Rules: []capture.Rule{{Why: "why"}}}}}
		text := RestoreText(rs, capture.IPv4, map[capture.Table]created{capture.NAT: want})
		if note != "" && !strings.Contains(text, fmt.Sprintf("-A CAPTURE_CNI -m comment --comment %q -j RETURN\n", note)) || note == "" && strings.Contains(text, "made:") {
			t.Errorf("%+v: got\n%s", want, text)
		}
		if got, ok := parseCreated(note), isNote(note); ok != (note != "") || cmp.Diff(got, want, cmp.AllowUnexported(created{})) != "" {
			t.Errorf("%q is read as %+v, %v", note, got, ok)
		}
	}
}

func FuzzParseCreated(f *testing.F) {
	f.Add("made: table PREROUTING")
	f.Add("capture-cni rules v1 ipv4 0")
	f.Fuzz(func(t *testing.T, text string) {
		parsed, ok := parseCreated(text), isNote(text)
		if !ok && (parsed.table || len(parsed.chains) > 0) {
			t.Errorf("%q is no note and is read as %+v", text, parsed)
		}
	})
}
