// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
)

func interfaces(n int) List[string] {
	return List[string]{Name: "interfaces", Values: make([]string, n)}
}

func singlePorts(n int) List[PortRange] {
	return List[PortRange]{Name: "ports", Values: make([]PortRange, n)}
}

// TestExpanded counts the rules of iptables that a rule becomes: one for 15 ports, or 7 if one is a
// range, and for each combination of other values.
func TestExpanded(t *testing.T) {
	t.Parallel()
	mixed := func(n int) List[PortRange] {
		list := singlePorts(n)
		list.Values[n-1] = PortRange{First: 80, Last: 81}
		return list
	}
	for _, tt := range []struct {
		match Match
		want  int
	}{
		{Match{}, 1},
		{Match{DstPort: singlePorts(15)}, 1},
		{Match{DstPort: singlePorts(16)}, 2},
		{Match{DstPort: singlePorts(30)}, 2},
		{Match{DstPort: singlePorts(31)}, 3},
		{Match{DstPort: mixed(7)}, 1},
		{Match{DstPort: mixed(8)}, 2},
		{Match{DstPort: singlePorts(16), In: interfaces(3), Out: interfaces(5)}, 30},
	} {
		if got := tt.match.Expanded(); got != tt.want {
			t.Errorf("%d ports and %d interfaces become %d rules, want %d", len(tt.match.DstPort.Values), len(tt.match.In.Values), got, tt.want)
		}
	}
}

// TestExpansionKeys names the annotation with the longest list, also if all its elements are the operator's.
func TestExpansionKeys(t *testing.T) {
	t.Parallel()
	excluded := func(in *Intent, ranges []netip.Prefix) { in.ExcludeOutboundRanges = ranges }
	included := func(in *Intent, ranges []netip.Prefix) { in.OutboundRanges.Only = ranges }
	for _, tt := range []struct {
		mesh config.MeshName
		key  string
		set  func(in *Intent, ranges []netip.Prefix)
	}{
		{config.Istio, annotationExcludeOutboundRanges, excluded},
		{config.Istio, annotationIncludeOutboundRanges, included},
		{config.OwnKeys, annotationExceptRanges, excluded},
		{config.OwnKeys, annotationOnlyRanges, included},
		{config.Linkerd, annotationSkipSubnets, func(in *Intent, ranges []netip.Prefix) { in.ExcludeInboundRanges = ranges }},
	} {
		for _, address := range []string{"10.0.0.0", "fd00::"} {
			ranges, next := make([]netip.Prefix, MaxExpanded+1), netip.MustParseAddr(address)
			for i := range ranges {
				ranges[i], next = netip.PrefixFrom(next, next.BitLen()), next.Next().Next()
			}
			in := Intent{Mesh: tt.mesh, InboundPort: 1, OutboundPort: 2, IPv6: Captured}
			tt.set(&in, ranges)
			want := "annotation " + tt.key + `: "": the lists, with those of netconf.mesh, become `
			if err := meshOf(tt.mesh).checkExpansion(Pod{}, Rules(in)); err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%s, %s: %v, want %s", tt.mesh, address, err, want)
			}
		}
	}
	old := map[string]string{annotationKubevirtInterfaces: "eth1"}
	if got := meshOf(config.Istio).keyOf(Pod{Annotations: old}, ListReroute); got != annotationKubevirtInterfaces {
		t.Errorf("the pod's own annotation: %s", got)
	}
}

// TestExpansionLimit has rules at the limits of both backends, of one family or of both. The fault names the
// lists of the first of the largest rules that have more than one value.
func TestExpansionLimit(t *testing.T) {
	t.Parallel()
	one := List[string]{Name: "one", Values: []string{"lo"}}
	for name, tt := range map[string]struct {
		rules []Match
		key   string // "" for no fault
		want  string
	}{
		"rules":           {[]Match{{Family: IPv4, Out: interfaces(MaxExpanded)}}, "", ""},
		"too many rules":  {[]Match{{Family: IPv4, Out: interfaces(MaxExpanded + 1), In: one}}, "interfaces", "60001 rules of iptables and 60002 elements"},
		"both families":   {[]Match{{Out: interfaces(MaxExpanded/2 + 1)}}, "interfaces", "60002 rules of iptables and 30001 elements"},
		"IPv6":            {[]Match{{Family: IPv6, Out: interfaces(MaxExpanded + 1)}}, "interfaces", "60001 rules of iptables and 60001 elements"},
		"elements":        {[]Match{{Family: IPv4, DstPort: singlePorts(MaxExpanded)}}, "", ""},
		"too many":        {[]Match{{Family: IPv4, DstPort: singlePorts(MaxExpanded + 1)}}, "ports", "4001 rules of iptables and 60001 elements"},
		"one list, twice": {[]Match{{Family: IPv4, DstPort: singlePorts(MaxExpanded)}, {Family: IPv4, DstPort: singlePorts(MaxExpanded)}}, "", ""},
		"of one size": {
			[]Match{{Family: IPv4, Out: interfaces(MaxExpanded)}, {Family: IPv4, Out: List[string]{Name: "later", Values: make([]string, MaxExpanded)}}},
			"interfaces", "120000 rules of iptables and 120000 elements",
		},
	} {
		chain := Chain{Table: NAT, Name: "OUTPUT", Hook: Output}
		for _, match := range tt.rules {
			chain.Rules = append(chain.Rules, Rule{Match: match})
		}
		err := meshOf(config.Istio).checkExpansion(Pod{}, Ruleset{Chains: []Chain{chain}})
		if got := fmt.Sprint(err); (err != nil) != (tt.key != "") || err != nil && (!strings.Contains(got, tt.want) || !strings.Contains(got, tt.key) || strings.Contains(got, "one")) {
			t.Errorf("%s: %v, want %q of %q", name, err, tt.want, tt.key)
		}
	}
}
