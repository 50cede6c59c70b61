// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"testing"

	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/install/telemetry"
)

// TestEveryRepairIsReported has a pod lose its rules after each repair: each
// repair has its record, its count and, from the second on, counts as repeated.
func TestEveryRepairIsReported(t *testing.T) {
	t.Parallel()
	n := newNode()
	conn := n.listen(t)
	p := n.run(t, "web")
	p.capture(t, nil)
	g := n.newGuard(t, options{})
	g.finds(t, report.Captured)
	const losses = 3
	for range losses {
		p.nft(t, "delete", "table", "inet", "capture-cni")
		g.finds(t, report.Captured)
	}
	if reported := verdicts(receive(t, conn)["web"])[telemetry.Repaired]; reported != losses {
		t.Errorf("%d of %d repairs were reported", reported, losses)
	}
	if done, repeated := g.series(t, "pod_repairs_total")["done"], g.series(t, "pod_repairs_repeated_total")[""]; done != losses || repeated != losses-1 {
		t.Errorf("%v repairs were counted and %v repeated ones, want %d and %d", done, repeated, losses, losses-1)
	}
}
