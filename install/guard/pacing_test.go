// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"strings"
	"testing"
	"time"
)

// TestBackOff repairs a pod some times without a pause, then after pauses that
// double up to a minute, and begins anew once the pod kept its rules.
func TestBackOff(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	p := newPace()
	var of repairs
	repair := func() (repeated bool) {
		t.Helper()
		if refusal := p.refusal(&of, now); refusal != "" {
			t.Fatalf("repair %d: %s", of.count+1, refusal)
		}
		return of.attempted(now)
	}
	for i := range promptRepairs {
		if repeated := repair(); repeated != (i > 0) {
			t.Errorf("repair %d: repeated %v", i+1, repeated)
		}
	}
	for _, pause := range []time.Duration{2, 4, 8, 16, 32, 60, 60, 60} {
		now = now.Add(pause*time.Second - time.Millisecond)
		if refusal := p.refusal(&of, now); !strings.Contains(refusal, "in a row") {
			t.Errorf("after %d repairs, %d s later: %q", of.count, pause, refusal)
		}
		now = now.Add(time.Millisecond)
		if !repair() {
			t.Errorf("after %d repairs: not repeated", of.count-1)
		}
	}
	now = now.Add(calmAfter)
	if repair() || of.count != 1 {
		t.Errorf("after it was calm: %d repairs", of.count)
	}
}

// TestPaceOfOthers has pods that are repaired again and again use up their own
// limit, and not that of others.
func TestPaceOfOthers(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	p := newPace()
	for range 3 * repairsAhead {
		flapping := repairs{count: 1, last: now}
		p.refusal(&flapping, now)
	}
	if refusal := p.refusal(&repairs{count: 1, last: now}, now); !strings.Contains(refusal, "too many") {
		t.Errorf("pods that flap: %q", refusal)
	}
	for i := range repairsAhead {
		if refusal := p.refusal(&repairs{}, now); refusal != "" {
			t.Errorf("pod %d: %s", i, refusal)
		}
	}
	if refusal := p.refusal(&repairs{}, now); !strings.Contains(refusal, "too many") {
		t.Errorf("all at once: %q", refusal)
	}
	if refusal := p.refusal(&repairs{}, now.Add(repairEvery)); refusal != "" {
		t.Errorf("a second later: %s", refusal)
	}
}
