// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// Set contains several values of a match, which the kernel keeps as one set. The time of a lookup grows
// much more slowly than the number of values.
type Set struct {
	Name     string
	Type     SetType
	Elements []any // string, netip.Prefix, PortRange or uint32, as Type says
}

// SetType is nft's name for the type of a set's elements.
type SetType string

const (
	InterfaceSet SetType = "ifname"       // string
	IPv4Set      SetType = "ipv4_addr"    // netip.Prefix
	IPv6Set      SetType = "ipv6_addr"    // netip.Prefix
	PortSet      SetType = "inet_service" // PortRange
	UIDSet       SetType = "uid"          // uint32
	GIDSet       SetType = "gid"          // uint32
)

// Interval reports whether the kernel stores the elements as ranges. It returns true even for a set of
// single ports, which the kernel would otherwise store in a bitmap, because the time to fill a bitmap grows
// with the square of the number of ports.
func (t SetType) Interval() bool { return t == IPv4Set || t == IPv6Set || t == PortSet }

// Sets returns the sets that the rules use, each once, in the order of their first use.
func (rs Ruleset) Sets() []Set {
	var sets []Set
	seen := map[string]bool{}
	add := func(set Set) {
		if len(set.Elements) > 1 && !seen[set.Name] {
			seen[set.Name] = true
			sets = append(sets, set)
		}
	}
	for _, chain := range rs.Chains {
		for _, rule := range chain.Rules {
			m := rule.Match
			add(setOf(InterfaceSet, m.In))
			add(setOf(InterfaceSet, m.Out))
			add(setOf(addressType(m.Src), m.Src))
			add(setOf(addressType(m.Dst), m.Dst))
			add(setOf(PortSet, m.DstPort))
			add(setOf(UIDSet, m.UID))
			add(setOf(GIDSet, m.GID))
		}
	}
	return sets
}

func setOf[T any](t SetType, list List[T]) Set {
	elements := make([]any, len(list.Values))
	for i, value := range list.Values {
		elements[i] = value
	}
	return Set{Name: list.Name, Type: t, Elements: elements}
}

func addressType(list List[netip.Prefix]) SetType {
	if len(list.Values) > 0 && list.Values[0].Addr().Is4() {
		return IPv4Set
	}
	return IPv6Set
}

// Spell formats one value in nft's form.
func Spell(value any) string {
	switch v := value.(type) {
	case string:
		return fmt.Sprintf("%q", v)
	case netip.Prefix:
		if v.IsSingleIP() {
			return v.Addr().String()
		}
	}
	return fmt.Sprint(value)
}

// disjoint returns the sorted ranges, IPv4 first, without ranges that another range contains, because
// the kernel refuses overlapping elements in an interval set.
func disjoint(prefixes []netip.Prefix) []netip.Prefix {
	sorted := slices.SortedFunc(slices.Values(prefixes), func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	var kept []netip.Prefix
	for _, p := range sorted {
		// The ranges are sorted by address, and those with the same address by size, the largest first.
		// So only the last kept range can contain p.
		if len(kept) > 0 && kept[len(kept)-1].Overlaps(p) {
			continue
		}
		kept = append(kept, p)
	}
	return kept
}

func unique[T cmp.Ordered](values ...T) []T {
	return slices.Compact(slices.Sorted(slices.Values(values)))
}
