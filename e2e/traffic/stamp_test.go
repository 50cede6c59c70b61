// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestStampOfText repeats an ADD in a namespace whose rules an earlier version
// of the plugin wrote: its stamp holds a hash of text.
func TestStampOfText(t *testing.T) {
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		rs := decide(t, injected(nil, nil), dualStack())
		stamp := lab.TextStamp(rs)
		written, _ := rs.StampedAs(stamp)
		weaker := decide(t, injected(map[string]string{"traffic.sidecar.istio.io/excludeInboundPorts": "80"}, nil), dualStack())
		pod := newHost(t)
		netns := open(t, pod, backend)
		check(t, netns.Apply(written))
		check(t, netns.Apply(rs))
		expectRefusal(t, netns.Apply(weaker), stamp)
		state, err := netns.State(t.Context())
		check(t, err)
		if state.Stamp != stamp {
			t.Errorf("the namespace holds stamp %q, want %q", state.Stamp, stamp)
		}
		as, _ := rs.StampedAs(state.Stamp)
		differences, err := netns.Check(as)
		check(t, err)
		if len(differences) > 0 {
			t.Errorf("differences: %q", differences)
		}
		undo := map[config.Backend]string{
			config.NFTables:       "nft flush chain inet capture-cni nat_ISTIO_INBOUND",
			config.IPTablesNFT:    "iptables-nft -t nat -F ISTIO_INBOUND",
			config.IPTablesLegacy: "iptables-legacy -t nat -F ISTIO_INBOUND",
		}[backend]
		words := strings.Fields(undo)
		run(words[0], words[1:]...)(t, pod)
		expectRefusal(t, netns.Apply(rs), "the rules in the namespace were changed since ADD")
		differences, err = netns.Check(as)
		check(t, err)
		if len(differences) == 0 || !strings.Contains(differences[0], "ISTIO_INBOUND") {
			t.Errorf("differences: %q", differences)
		}
	})
}
