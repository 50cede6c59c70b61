// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

// TestIsMoved has roots of a mount in two lists of the kernel's, of which each may be incomplete.
func TestIsMoved(t *testing.T) {
	t.Parallel()
	const list = "/etc/cni/net.d"
	for _, tt := range []struct {
		before, now string
		want        bool
	}{
		{list, list, false},
		{"", list, false},
		{list, "", false},
		{"", "", false},
		{list, list + ".before", true},
		{list, list + "//deleted", true},
		{list + "//deleted", list + "//deleted", true},
		{"", list + "//deleted", true},
	} {
		if got := isMoved(tt.before, tt.now); got != tt.want {
			t.Errorf("from %q to %q: moved %t", tt.before, tt.now, got)
		}
	}
}
