// SPDX-License-Identifier: Apache-2.0

package xtables

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// entryOf returns an IPv4 entry whose target has this name and data.
func entryOf(target, data string) []byte {
	const size = 176
	entry := make([]byte, size)
	binary.NativeEndian.PutUint16(entry[84+targetOffset:], 112)
	binary.NativeEndian.PutUint16(entry[84+nextOffset:], size)
	copy(entry[112+targetName:], target)
	copy(entry[112+chainName:], data)
	return entry
}

// TestChains expects a chain for each entry that names one, and for no other.
func TestChains(t *testing.T) {
	t.Parallel()
	entries := slices.Concat(
		entryOf("", "ISTIO_INBOUND"), entryOf("ERROR", "A"), entryOf("REDIRECT", "ISTIO_INBOUND"),
		entryOf("ERROR", "ISTIO_OUTPUT"), entryOf("ERROR", "ERROR"))
	if got := families[capture.IPv4].chains(entries); !slices.Equal(got, []string{"A", "ISTIO_OUTPUT"}) {
		t.Errorf("got %q", got)
	}
}

// FuzzEntries parses entries that no kernel returns.
func FuzzEntries(f *testing.F) {
	f.Add(slices.Concat(entryOf("", ""), entryOf("ERROR", "ISTIO_OUTPUT"), entryOf("ERROR", "ERROR")))
	f.Add(slices.Concat(entryOf("", ""), entryOf("NOTRACK", ""), entryOf("ERROR", "ERROR")))
	f.Add(entryOf("ERROR", "X")[:100])
	f.Fuzz(func(t *testing.T, data []byte) {
		for family, legacy := range families {
			for target, chain := range legacy.targets(data) {
				if len(target)+len(chain) > len(data) {
					t.Errorf("%s: target %q, chain %q", family, target, chain)
				}
			}
			for _, name := range legacy.chains(data) {
				if len(name) > len(data) || name == "ERROR" {
					t.Errorf("%s: chain %q", family, name)
				}
			}
		}
	})
}
