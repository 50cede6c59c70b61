// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// TestLateFamily has a pod of IPv4 that gets an IPv6 address while it runs, as by a router
// advertisement: its rules refuse IPv6, the guard says so, over a restart too, and a
// repair restores no looser rules.
func TestLateFamily(t *testing.T) {
	t.Parallel()
	n := newNode()
	n.baselines = t.TempDir()
	conn := n.listen(t)
	p := n.run(t, "web")
	p.capture(t, nil)
	stamp := p.rules(t).Stamp
	if capture.StampedIPv6(stamp) != capture.Refused {
		t.Fatalf("the rules do not refuse IPv6: %s", stamp)
	}
	g := n.newGuard(t, options{})
	g.finds(t, report.Captured)
	lab.Check(t, p.host.AddAddresses("eth0", "2001:db8::2/64"))
	for range 10 {
		g.round(t)
	}
	g.expect(t, report.Changed)
	if records := receive(t, conn)["web"]; len(records) != 1 || !strings.Contains(records[0].Message, "ISTIO_DUAL_STACK") {
		t.Errorf("reported %+v", records)
	}
	for _, repaired := range []bool{false, true} {
		if repaired {
			p.nft(t, "delete", "table", "inet", "capture-cni")
		}
		g = n.newGuard(t, options{})
		g.round(t)
		g.finds(t, report.Changed)
		if now := p.rules(t).Stamp; now != stamp {
			t.Errorf("the rules are %s, want %s", now, stamp)
		}
	}
}
