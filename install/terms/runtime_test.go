// SPDX-License-Identifier: Apache-2.0

package terms

import (
	"fmt"
	"testing"
)

// TestSendsToAll listens to no runtime that would take an event from the
// kubelet for it.
func TestSendsToAll(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		runtime, version string
		want             bool
	}{
		{"containerd", "1.6.20~ds1", false},
		{"containerd", "1.7.29", false},
		{"containerd", "v1.7.29", false},
		{"containerd", "1.30.0", false},
		{"containerd", "2.0.0", true},
		{"containerd", "2.0.0-rc.1", true},
		{"containerd", "v2.1.4-k3s1", true},
		{"containerd", "10.0.0", true},
		{"containerd", "2", false},
		{"containerd", "", false},
		{"containerd", "v", false},
		{"containerd", "0.0.0+unknown", false},
		{"containerd", "two.zero", false},
		{"containerd", "2.x", false},
		{"containerd", " 2.0.0", false},
		{"cri-o", "1.29.13", false},
		{"cri-o", "1.3.0", false},
		{"cri-o", "1.30.0", true},
		{"cri-o", "v1.30.0", true},
		{"cri-o", "1.34.1-dev", true},
		{"cri-o", "2.0.0", true},
		{"cri-o", "", false},
		{"dockershim", "2.0.0", false},
		{"docker", "28.1.1", false},
		{"Containerd", "2.0.0", false},
		{"", "2.0.0", false},
		{"", "", false},
	} {
		if got := (Runtime{tt.runtime, tt.version}).SendsToAll(); got != tt.want {
			t.Errorf("%q %q: %v", tt.runtime, tt.version, got)
		}
	}
}

func TestIgnoresDropIns(t *testing.T) {
	t.Parallel()
	for version, want := range map[Runtime]bool{
		{"containerd", "1.7.28"}: true, {"containerd", "v2.0.7"}: true, {"containerd", "v2.1.0-rc.1"}: false, {"containerd", "v2.1.4-k3s1"}: false, {"containerd", "3.0"}: false,
		{"cri-o", "1.32.9"}: true, {"cri-o", "1.33.0"}: false, {"containerd", "main"}: false, {"another", "1.0"}: false, {}: false,
	} {
		if got := version.IgnoresDropIns(); got != want {
			t.Errorf("%s: %t, want %t", fmt.Sprint(version), got, want)
		}
	}
}
