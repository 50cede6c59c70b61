// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"slices"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/report"
)

// TestDue wants new pods first, then those that have waited longest, and no pod before its time.
func TestDue(t *testing.T) {
	t.Parallel()
	now := time.Now()
	g := &Guard{watched: map[string]*watched{}}
	for id, next := range map[string]time.Time{
		"a": now.Add(-time.Second), "b": now.Add(-time.Minute), "c": now.Add(-time.Hour), "d": now,
		"e": now.Add(time.Nanosecond), "f": {}, "g": {}, "h": now.Add(-time.Minute),
	} {
		g.watched[id] = &watched{sandbox: cri.Sandbox{ID: id}, next: next}
	}
	var got []string
	for _, w := range g.due(now) {
		got = append(got, w.sandbox.ID)
	}
	if want := []string{"f", "g", "c", "b", "h", "a", "d"}; !slices.Equal(got, want) {
		t.Errorf("the guard examines %q, want %q", got, want)
	}
}

// TestPauseAfter examines a pod that is not as it should be soon again, unless nothing
// would change that.
func TestPauseAfter(t *testing.T) {
	t.Parallel()
	soon := map[report.Code]bool{report.Uncaptured: true, report.Drifted: true, report.Unknown: true}
	for _, state := range report.PodStates() {
		for round, want := range map[time.Duration]time.Duration{time.Minute: retryInterval, time.Second: time.Second} {
			if !soon[state] {
				want = round
			}
			g := &Guard{settings: Settings{Round: round}}
			if got := g.pauseAfter(&watched{finding: finding(state, "")}); got != want {
				t.Errorf("%s, rounds of %s: examined again after %s, want %s", state, round, got, want)
			}
		}
	}
	g, isolated := &Guard{settings: Settings{Round: time.Minute}}, &watched{sandbox: cri.Sandbox{Runtime: cri.OCIRuntime{Handler: "runsc"}}, finding: finding(report.Uncaptured, "")}
	if got := g.pauseAfter(isolated); got != time.Minute {
		t.Errorf("a sandbox with a network of its own: examined again after %s", got)
	}
}
