// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"slices"
	"testing"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// legacyEntry is an IPv4 entry with a target of a name and data.
func legacyEntry(target, data string) []byte {
	const size = 176
	entry := make([]byte, size)
	entry[84+targetOffset], entry[84+nextOffset] = 112, size
	copy(entry[112+targetName:], target)
	copy(entry[112+chainName:], data)
	return entry
}

// TestLegacyChains knows a chain by the entry that names it, and by nothing else.
func TestLegacyChains(t *testing.T) {
	t.Parallel()
	entries := slices.Concat(
		legacyEntry("", "ISTIO_INBOUND"), legacyEntry("ERROR", "A"), legacyEntry("REDIRECT", "ISTIO_INBOUND"),
		legacyEntry("ERROR", "ISTIO_OUTPUT"), legacyEntry("ERROR", "ERROR"))
	if got := legacyFamilies[capture.IPv4].chains(entries); !slices.Equal(got, []string{"A", "ISTIO_OUTPUT"}) {
		t.Errorf("got %q", got)
	}
}

// FuzzLegacyChains reads what the kernel would never give.
func FuzzLegacyChains(f *testing.F) {
	f.Add(slices.Concat(legacyEntry("", ""), legacyEntry("ERROR", "ISTIO_OUTPUT"), legacyEntry("ERROR", "ERROR")))
	f.Add(legacyEntry("ERROR", "X")[:100])
	f.Fuzz(func(t *testing.T, data []byte) {
		for family, legacy := range legacyFamilies {
			for _, name := range legacy.chains(data) {
				if len(name) > len(data) || name == "ERROR" {
					t.Errorf("%s: chain %q", family, name)
				}
			}
		}
	})
}
