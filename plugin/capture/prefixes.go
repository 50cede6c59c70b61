// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"cmp"
	"net/netip"
	"slices"
)

// disjoint sorts ranges, IPv4 first, and removes those that another range contains:
// the kernel refuses overlapping elements in an interval set.
func disjoint(prefixes []netip.Prefix) []netip.Prefix {
	sorted := slices.SortedFunc(slices.Values(prefixes), func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	var kept []netip.Prefix
	for _, p := range sorted {
		// Sorted by address, then widest first: only the last kept range can contain p.
		if len(kept) > 0 && kept[len(kept)-1].Overlaps(p) {
			continue
		}
		kept = append(kept, p)
	}
	return kept
}

// ofFamily returns the ranges of one family.
func ofFamily(prefixes []netip.Prefix, family Family) []netip.Prefix {
	var kept []netip.Prefix
	for _, p := range prefixes {
		if p.Addr().Is4() == (family == IPv4) {
			kept = append(kept, p)
		}
	}
	return kept
}

// unique sorts values and removes duplicates.
func unique[T cmp.Ordered](values ...T) []T {
	return slices.Compact(slices.Sorted(slices.Values(values)))
}
