// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
)

// PortRange contains the ports from First to Last.
type PortRange struct{ First, Last uint16 }

// Ports returns a range for each port.
func Ports(ports ...uint16) []PortRange {
	ranges := make([]PortRange, len(ports))
	for i, port := range ports {
		ranges[i] = PortRange{port, port}
	}
	return ranges
}

// Contains reports whether a port is in the range.
func (r PortRange) Contains(port uint16) bool { return r.First <= port && port <= r.Last }

// Spell returns the only port of the range, or the first and the last port with the text between in the
// middle.
func (r PortRange) Spell(between string) string {
	if r.First == r.Last {
		return strconv.Itoa(int(r.First))
	}
	return strconv.Itoa(int(r.First)) + between + strconv.Itoa(int(r.Last))
}

// String returns the range in nft's form.
func (r PortRange) String() string { return r.Spell("-") }

// MarshalJSON returns a single port as a number, as releases without ranges did, so that the Stamps of
// rules with single ports stay the same.
func (r PortRange) MarshalJSON() ([]byte, error) {
	if r.First == r.Last {
		return json.Marshal(r.First)
	}
	return json.Marshal([]uint16{r.First, r.Last})
}

// UnmarshalJSON reads the result of MarshalJSON.
func (r *PortRange) UnmarshalJSON(text []byte) error {
	if err := json.Unmarshal(text, &r.First); err == nil {
		r.Last = r.First
		return nil
	}
	return json.Unmarshal(text, &[]any{&r.First, &r.Last})
}

func contains(ranges []PortRange, port uint16) bool {
	return slices.ContainsFunc(ranges, func(r PortRange) bool { return r.Contains(port) })
}

// merged returns the sorted ranges, and joins overlapping ranges, because the kernel refuses
// overlapping elements in an interval set.
func merged(ranges []PortRange) []PortRange {
	sorted := slices.SortedFunc(slices.Values(ranges), func(a, b PortRange) int { return cmp.Compare(a.First, b.First) })
	var kept []PortRange
	for _, r := range sorted {
		if last := len(kept) - 1; last >= 0 && r.First <= kept[last].Last {
			kept[last].Last = max(kept[last].Last, r.Last)
			continue
		}
		kept = append(kept, r)
	}
	return kept
}
