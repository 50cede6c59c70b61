// SPDX-License-Identifier: Apache-2.0

package netfilter

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
		content, found := nested(data, path...)
		if want = strings.TrimSpace(want); found != (want != "") || string(content) != want {
			t.Errorf("path %v: %q, %v; want %q", path, content, found, want)
		}
	}
}
