// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"net/netip"
	"slices"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// shapeOf returns the Ruleset with the same two values in each set of one type.
// Rulesets that differ only in the elements of their sets have the same shape.
func shapeOf(rs capture.Ruleset) capture.Ruleset {
	shape := capture.Ruleset{IPv6: rs.IPv6, LocalMark: rs.LocalMark, Chains: slices.Clone(rs.Chains)}
	for i := range shape.Chains {
		rules := slices.Clone(shape.Chains[i].Rules)
		for j := range rules {
			rules[j].Match = shapeOfMatch(rules[j].Match)
		}
		shape.Chains[i].Rules = rules
	}
	return shape
}

func shapeOfMatch(m capture.Match) capture.Match {
	m.In, m.Out = twoOf(m.In, "a", "b"), twoOf(m.Out, "a", "b")
	m.Src, m.Dst = twoRanges(m.Src), twoRanges(m.Dst)
	m.DstPort = twoOf(m.DstPort, 1, 3)
	m.UID, m.GID = twoOf(m.UID, 1, 2), twoOf(m.GID, 1, 2)
	return m
}

// twoOf returns a single value unchanged: it is part of the rule itself.
func twoOf[T any](list capture.List[T], first, second T) capture.List[T] {
	if len(list.Values) > 1 {
		list.Values = []T{first, second}
	}
	return list
}

func twoRanges(list capture.List[netip.Prefix]) capture.List[netip.Prefix] {
	if len(list.Values) > 0 && list.Values[0].Addr().Is4() {
		return twoOf(list, netip.MustParsePrefix("192.0.2.0/25"), netip.MustParsePrefix("198.51.100.0/25"))
	}
	return twoOf(list, netip.MustParsePrefix("2001:db8::/33"), netip.MustParsePrefix("2001:db9::/33"))
}
