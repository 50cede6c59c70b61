// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/install/guard"
	"github.com/capture-cni/capture-cni/plugin/podnet"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// TestLocked has another process hold the lock of two pods, as an ADD or a DEL does. The
// guard waits for neither, and repairs the third.
func TestLocked(t *testing.T) {
	n := newNode()
	conn := n.listen(t)
	known := n.run(t, "a-known")
	keeper, registry := n.keeper(t, guard.InPlace)
	wholeRound(t, keeper)
	expect(t, registry, map[guard.State]float64{guard.Captured: 1})
	fresh, free := n.run(t, "b-fresh"), n.run(t, "c-free")
	known.nft(t, "delete", "table", "inet", "capture-cni")
	for _, p := range []*pod{known, fresh} {
		held, err := podnet.Open(t.Context(), p.sandbox.NetNS)
		check(t, err)
		released := time.AfterFunc(3*time.Second, func() { _ = held.Close() }) // for a guard that waits
		defer func() {
			if released.Stop() {
				_ = held.Close()
			}
		}()
	}
	for range 2 {
		wholeRound(t, keeper)
		expect(t, registry, map[guard.State]float64{guard.Captured: 2, guard.Unknown: 1})
	}
	for p, captured := range map[*pod]bool{known: false, fresh: false, free: true} {
		if got := p.rules(t).Backend != ""; got != captured {
			t.Errorf("%s: captured %v, want %v", p.sandbox.ID, got, captured)
		}
	}
	records := receive(t, conn)
	expectRepair(t, records["a-known"], record.Uncaptured)
	expectRepair(t, records["c-free"], record.Uncaptured)
}
