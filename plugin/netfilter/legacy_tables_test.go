// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"slices"
	"testing"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// legacyEntry returns an IPv4 entry whose target has this name and data.
func legacyEntry(target, data string) []byte {
	const size = 176
	entry := make([]byte, size)
	entry[84+targetOffset], entry[84+nextOffset] = 112, size
	copy(entry[112+targetName:], target)
	copy(entry[112+chainName:], data)
	return entry
}

// TestLegacyChains expects a chain for each entry that names one, and for no other.
func TestLegacyChains(t *testing.T) {
	t.Parallel()
	entries := slices.Concat(
		legacyEntry("", "ISTIO_INBOUND"), legacyEntry("ERROR", "A"), legacyEntry("REDIRECT", "ISTIO_INBOUND"),
		legacyEntry("ERROR", "ISTIO_OUTPUT"), legacyEntry("ERROR", "ERROR"))
	if got := legacyFamilies[capture.IPv4].chains(entries); !slices.Equal(got, []string{"A", "ISTIO_OUTPUT"}) {
		t.Errorf("got %q", got)
	}
}

// FuzzLegacyChains parses entries that no kernel returns.
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
