// SPDX-License-Identifier: Apache-2.0

package kernel

import "testing"

// TestHasUID has the uids of a listener, as the kernel reports them on the node, and the proxy's.
func TestHasUID(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		listener, proxy uint32
		want            bool
	}{
		{1337, 1337, true},
		{1337, 1000, false}, // netconf.mesh.proxyUID was changed since the pod started
		{0, 1337, true},
		{131072 + 1337, 1337, true}, // in a user namespace
		{131072 + 1000, 1337, false},
		{1000650000, 1000650000, true}, // of OpenShift
		{1000650000, 1000650001, false},
	} {
		if got := hasUID(Socket{UID: tt.listener}, tt.proxy); got != tt.want {
			t.Errorf("a listener of %d is that of proxy %d: %v", tt.listener, tt.proxy, got)
		}
	}
}
