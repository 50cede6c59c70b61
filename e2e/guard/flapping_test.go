// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/guard"
	"github.com/capture-cni/capture-cni/install/received"
)

// TestEveryRepairIsReported has a pod lose its rules after each repair: each
// repair has its record, its count and, from the second on, counts as repeated.
func TestEveryRepairIsReported(t *testing.T) {
	n := newNode()
	conn := n.listen(t)
	p := n.run(t, "web")
	p.capture(t, nil)
	keeper, registry := n.keeper(t, guard.InPlace)
	keeper.Round(t.Context())
	const losses = 6
	reported := 0
	for range losses {
		p.nft(t, "delete", "table", "inet", "capture-cni")
		for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
			keeper.Round(t.Context())
			if p.rules(t).Backend != "" {
				break
			}
			if time.Now().After(end) {
				t.Fatal("it is not repaired")
			}
		}
		reported += count(receive(t, conn)["web"], received.Repaired)
	}
	if reported != losses {
		t.Errorf("%d of %d repairs were reported", reported, losses)
	}
	if done, repeated := counter(t, registry, "pod_repairs_total"), counter(t, registry, "pod_repairs_repeated_total"); done != losses || repeated != losses-1 {
		t.Errorf("%v repairs were counted and %v repeated ones, want %d and %d", done, repeated, losses, losses-1)
	}
}

// TestFlappingPodsDelayNoOther has as many pods lose their rules after each
// repair as the guard repairs at once, and then another pod for the first time:
// that one is repaired in the next round.
func TestFlappingPodsDelayNoOther(t *testing.T) {
	n := newNode()
	var flapping []*pod
	for i := range 30 {
		p := n.run(t, fmt.Sprintf("flapping-%d", i))
		p.capture(t, nil)
		flapping = append(flapping, p)
	}
	other := n.run(t, "other")
	other.capture(t, nil)
	keeper, _ := n.keeper(t, guard.InPlace)
	wholeRound(t, keeper)
	flap := func() {
		for _, p := range flapping {
			if p.rules(t).Backend != "" {
				p.nft(t, "delete", "table", "inet", "capture-cni")
			}
		}
	}
	for range 4 {
		flap()
		wholeRound(t, keeper)
	}
	time.Sleep(1100 * time.Millisecond) // one more repair is allowed
	flap()
	other.nft(t, "delete", "table", "inet", "capture-cni")
	wholeRound(t, keeper)
	if other.rules(t).Backend == "" {
		t.Error("a pod that lost its rules once waits for those that lose them again and again")
	}
}

// counter is the first series of a counter.
func counter(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	lab.Check(t, err)
	for _, family := range families {
		if family.GetName() == "capture_cni_"+name {
			return family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	return -1
}
