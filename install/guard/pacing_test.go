// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/capture-cni/capture-cni/install/report"
)

// TestBackOff allows some repairs of a pod without a pause, then requires pauses that
// double up to a minute, and resets after ten minutes without a repair.
func TestBackOff(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	limits := newRepairLimits()
	var pod streak
	repair := func() (repeated bool) {
		t.Helper()
		if refusal := limits.refusal(&pod, now); refusal != "" {
			t.Fatalf("repair %d: %s", pod.count+1, refusal)
		}
		return pod.add(now)
	}
	for i := range repairsWithoutPause {
		if repeated := repair(); repeated != (i > 0) {
			t.Errorf("repair %d: repeated %v", i+1, repeated)
		}
	}
	for _, pause := range []time.Duration{2, 4, 8, 16, 32, 60, 60, 60} {
		now = now.Add(pause*time.Second - time.Millisecond)
		if refusal := limits.refusal(&pod, now); !strings.Contains(refusal, "in a row") {
			t.Errorf("after %d repairs, %d s later: %q", pod.count, pause, refusal)
		}
		now = now.Add(time.Millisecond)
		if !repair() {
			t.Errorf("after %d repairs: not repeated", pod.count-1)
		}
	}
	now = now.Add(resetAfter)
	if repair() || pod.count != 1 {
		t.Errorf("after the reset: %d repairs", pod.count)
	}
}

// TestRepeatedRepairsHaveTheirOwnLimit: they do not delay the first repair pod
// another pod.
func TestRepeatedRepairsHaveTheirOwnLimit(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	limits := newRepairLimits()
	for range 3 * repairBurst {
		flapping := streak{count: 1, last: now}
		limits.refusal(&flapping, now)
	}
	if refusal := limits.refusal(&streak{count: 1, last: now}, now); !strings.Contains(refusal, "too many") {
		t.Errorf("pods that flap: %q", refusal)
	}
	for i := range repairBurst {
		if refusal := limits.refusal(&streak{}, now); refusal != "" {
			t.Errorf("pod %d: %s", i, refusal)
		}
	}
	if refusal := limits.refusal(&streak{}, now); !strings.Contains(refusal, "too many") {
		t.Errorf("all at once: %q", refusal)
	}
	if refusal := limits.refusal(&streak{}, now.Add(repairInterval)); refusal != "" {
		t.Errorf("a second later: %s", refusal)
	}
}

// TestRefusedRepair touches no namespace, and counts no attempt, where a limit forbids the
// repair. A pod's first repair has the limit of first ones.
func TestRefusedRepair(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]streak{"first": {}, "repeated": {1, time.Now()}} {
		_, g := newPodNode(t, Settings{})
		limit := map[string]*rate.Limiter{"first": g.examiner.limits.first, "repeated": g.examiner.limits.repeated}[name]
		limit.AllowN(time.Now(), repairBurst)
		w := examined("web", report.Finding{})
		w.repairs = before
		found := g.examiner.repair(t.Context(), nil, w, finding(report.Drifted, "a rule more"))
		if found.Code != report.Drifted || !strings.Contains(found.Reason, "a rule more; too many repairs") || w.repairs != before {
			t.Errorf("%s: %+v, with %+v", name, found, w.repairs)
		}
	}
}

// TestStreak ends ten minutes after its last repair, and begins with the first.
func TestStreak(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	for _, tt := range []struct {
		streak streak
		on     bool
		wait   time.Duration
	}{
		{streak{last: now}, false, 0},
		{streak{count: 1, last: now}, true, 0},
		{streak{count: repairsWithoutPause, last: now}, true, firstPause},
		{streak{count: 20, last: now.Add(-resetAfter + 1)}, true, 0},
		{streak{count: 20, last: now.Add(-resetAfter)}, false, 0},
	} {
		if on, wait := tt.streak.isOn(now), tt.streak.backOff(now, repairsWithoutPause); on != tt.on || wait != tt.wait {
			t.Errorf("%+v: on %v, wait %s", tt.streak, on, wait)
		}
	}
}
