// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"net/netip"
	"slices"
)

// Shape returns the Ruleset with the same two values in each set of one type. Rulesets
// that differ only in the elements of their sets have the same Shape.
func (rs Ruleset) Shape() Ruleset {
	shape := rs
	shape.Chains = slices.Clone(rs.Chains)
	for i := range shape.Chains {
		rules := slices.Clone(shape.Chains[i].Rules)
		for j := range rules {
			rules[j].Match = rules[j].Match.shape()
		}
		shape.Chains[i].Rules = rules
	}
	return shape
}

func (m Match) shape() Match {
	m.In, m.Out = twoOf(m.In, "a", "b"), twoOf(m.Out, "a", "b")
	m.Src, m.Dst = twoRanges(m.Src), twoRanges(m.Dst)
	m.DstPort = twoOf(m.DstPort, 1, 3)
	m.UID, m.GID = twoOf(m.UID, 1, 2), twoOf(m.GID, 1, 2)
	return m
}

// twoOf keeps a single value, which is in the rule and not in a set.
func twoOf[T any](list List[T], first, second T) List[T] {
	if len(list.Values) > 1 {
		list.Values = []T{first, second}
	}
	return list
}

func twoRanges(list List[netip.Prefix]) List[netip.Prefix] {
	if addressType(list) == IPv4Set {
		return twoOf(list, netip.MustParsePrefix("192.0.2.0/25"), netip.MustParsePrefix("198.51.100.0/25"))
	}
	return twoOf(list, netip.MustParsePrefix("2001:db8::/33"), netip.MustParsePrefix("2001:db9::/33"))
}
