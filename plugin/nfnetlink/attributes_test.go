// SPDX-License-Identifier: Apache-2.0

package nfnetlink

import (
	"strings"
	"testing"

	"github.com/mdlayher/netlink"
)

// TestNested finds the attribute at the end of a path, and nothing where a step is missing.
func TestNested(t *testing.T) {
	t.Parallel()
	encode := func(attributes ...netlink.Attribute) []byte {
		encoded, err := netlink.MarshalAttributes(attributes)
		if err != nil {
			t.Fatal(err)
		}
		return encoded
	}
	inner := encode(netlink.Attribute{Type: 2, Data: []byte("found")}, netlink.Attribute{Type: 9, Data: []byte("beside")})
	data := encode(netlink.Attribute{Type: 7, Data: []byte("before")}, netlink.Attribute{Type: 1, Data: inner})
	for want, path := range map[string][]uint16{
		"found": {1, 2}, "beside": {1, 9}, "before": {7},
		"": {1, 3}, " ": {3}, "  ": {1, 2, 3}, "   ": {7, 2},
	} {
		content, found := Nested(data, path...)
		if want = strings.TrimSpace(want); found != (want != "") || string(content) != want {
			t.Errorf("path %v: %q, %v; want %q", path, content, found, want)
		}
	}
}

// FuzzAttributes parses messages that no kernel sends today.
func FuzzAttributes(f *testing.F) {
	f.Add([]byte{12, 0, 1, 0, 8, 0, 1, 0, 'l', 'o', 0, 0})
	f.Add([]byte{200, 0, 1, 0})
	f.Add([]byte{4, 0, 1, 0x80, 0})
	f.Add([]byte{0, 0, 1, 0, 4, 0, 1, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		seen := 0
		err := EachAttribute(data, func(_ uint16, content []byte) error {
			seen += 4 + len(content)
			return nil
		})
		if seen > len(data) || err == nil && seen+3 < len(data) && seen == 0 {
			t.Errorf("%d of %d bytes were read: %v", seen, len(data), err)
		}
		if message, err := parseMessage(data); err == nil && len(message[Family]) != 1 {
			t.Error("a message without a family")
		}
		if comment, found := UserComment(data); !found && comment != "" {
			t.Errorf("comment %q", comment)
		}
	})
}
