// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestRefused sums the counters of the chains that refuse, in every table,
// and no other numbers.
func TestRefused(t *testing.T) {
	host := lab.StartHost(t)
	host.Load(t, `
table inet capture-cni {
	chain filter_ISTIO_REFUSE { limit rate 1000/second counter packets 1 bytes 60 reject; counter packets 2 bytes 60 reject; }
	chain mangle_ISTIO_REFUSE { counter packets 4 bytes 60 drop; }
	chain filter_ISTIO_REFUSE_IN { counter packets 32 bytes 60 drop; }
	chain filter_ISTIO_FENCE { counter packets 1000 bytes 60 drop; }
	chain nat_ISTIO_OUTPUT { counter packets 1000 bytes 60 return; }
}
table ip filter { chain ISTIO_REFUSE { counter packets 8 bytes 60 reject; }; chain OUTPUT { counter packets 1000 bytes 60; }; }
table ip6 mangle { chain ISTIO_REFUSE { counter packets 16 bytes 60 drop; }; }
table ip6 filter { chain ISTIO_REFUSE_IN { counter packets 64 bytes 60 drop; }; }
table inet another { chain filter_ISTIO_REFUSE { counter packets 1000 bytes 60 drop; }; }
`)
	host.Within(t, func() error {
		if got, err := counters(t.Context()); err != nil || got.Refused() != 127 {
			t.Errorf("got %d of %v, %v, want 127", got.Refused(), got, err)
		}
		return nil
	})
}
