// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/quick"

	"github.com/capture-cni/capture-cni/config"
)

func TestParseList(t *testing.T) {
	t.Parallel()
	got, err := parseList(" 80, 443 ,8080", config.ParsePort)
	if err != nil || !slices.Equal(got, []uint16{80, 443, 8080}) {
		t.Errorf("got %v, %v", got, err)
	}
	for _, empty := range []string{"", "  "} {
		if got, err := parseList(empty, config.ParsePort); err != nil || got != nil {
			t.Errorf("%q: got %v, %v", empty, got, err)
		}
	}
	_, err = parseList("80,,x,443,", config.ParsePort)
	if err == nil || strings.Count(err.Error(), "empty element") != 2 || !strings.Contains(err.Error(), `"x"`) {
		t.Errorf("not all faults are named: %v", err)
	}
	d := decider{pod: Pod{Annotations: map[string]string{"all": " * ", "mixed": "*,80"}}}
	if all := selectionOf(&d, "all", config.ParsePort); !all.All || d.faults != nil {
		t.Errorf("got %v, %v", all, d.faults)
	}
	selectionOf(&d, "mixed", config.ParsePort)
	expect(t, "*,80", d.faults, "cannot be part of a list")
}

func expect(t *testing.T, input string, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("%q: %v", input, err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("%q: got error %v, want one with %q", input, err, want)
	}
}

// TestDisjoint draws random ranges that often overlap: the result contains the same
// addresses, each in one range.
func TestDisjoint(t *testing.T) {
	t.Parallel()
	property := func(seeds []uint16) bool {
		var ranges []netip.Prefix
		for _, s := range seeds {
			address := netip.AddrFrom4([4]byte{10, 0, 0, byte(s)})
			ranges = append(ranges, netip.PrefixFrom(address, 24+int(s>>8)%9).Masked())
		}
		kept := disjoint(ranges)
		for i := range 256 {
			address := netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
			contains := func(p netip.Prefix) bool { return p.Contains(address) }
			count := 0
			for _, p := range kept {
				if contains(p) {
					count++
				}
			}
			if count > 1 || (count == 1) != slices.ContainsFunc(ranges, contains) {
				return false
			}
		}
		return true
	}
	if err := quick.Check(property, &quick.Config{MaxCount: 500}); err != nil {
		t.Error(err)
	}
}
