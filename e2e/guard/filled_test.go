// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/install/guard"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/install/telemetry"
)

// TestFilledTable has a pod fill our table with more than the guard reads, as one with
// NET_ADMIN can: it is drifted, and repaired. plugin/netfilter.TestLimits has the limits.
func TestFilledTable(t *testing.T) {
	t.Parallel()
	for _, chain := range []string{"nat_OUTPUT", "stamp"} { // of the rules, and of the namespace's state
		n := newNode()
		conn := n.listen(t)
		p := n.run(t, "web")
		p.capture(t, nil)
		p.host.Load(t, strings.Repeat("add rule inet capture-cni "+chain+" counter\n", 5_001))
		n.newGuard(t, options{policy: guard.ReportOnly}).finds(t, report.Drifted)
		if records := receive(t, conn)["web"]; len(records) != 1 || !strings.Contains(records[0].Message, "more than 5000 rules") {
			t.Errorf("%s: reported %+v", chain, records)
		}
		n.newGuard(t, options{}).finds(t, report.Captured)
		expectRepair(t, receive(t, conn)["web"], telemetry.Drifted)
	}
}
