// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/report"
)

// confirming is a Runtime that a test lets say whether a pod runs.
type confirming struct {
	*shaky
	runs   func(ctx context.Context) (bool, error)
	exited bool // its containers
}

func (c *confirming) Runs(ctx context.Context, _ cri.Sandbox) (bool, error) { return c.runs(ctx) }

func (c *confirming) HaveExited(context.Context, cri.Sandbox) (bool, error) { return c.exited, nil }

// TestRuns takes a pod for one that has ended once its containers have exited: CRI-O
// reports its sandbox as ready. One that was never seen captured is between two containers.
func TestRuns(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ runs, exited, captured, want bool }{
		{true, false, true, true}, {true, true, true, false}, {true, true, false, true}, {false, false, true, false}, {false, true, false, false},
	} {
		s := newShakyGuard()
		s.examiner.runtime = &confirming{s.shaky, func(context.Context) (bool, error) { return tt.runs, nil }, tt.exited}
		w := asking(true)
		if tt.captured {
			w.baseline = stored
		}
		if got, err := s.examiner.runs(t.Context(), w); got != tt.want || err != nil {
			t.Errorf("%+v: %v, %v", tt, got, err)
		}
	}
}

// TestRestoreMarks marks a pod for eviction only if the policy says so, a controller would
// replace the pod, and the runtime says that the pod runs. The last finding is of no account.
func TestRestoreMarks(t *testing.T) {
	t.Parallel()
	gone, away := errors.New("no such sandbox"), errors.New("away")
	for _, tt := range []struct {
		policy       Policy
		alone, runs  bool
		fault, lists error
		want         bool
		says         string
	}{
		{Evict, false, true, nil, nil, true, "found"},
		{Evict, true, true, nil, nil, false, "found; it has no controller that would replace it, so it is not evicted"},
		{Evict, false, false, gone, nil, false, "found; not repaired or evicted, because it may have ended: no such sandbox"},
		{Evict, false, true, nil, away, false, "found; not repaired or evicted, because it may have ended: away"},
		{Evict, false, false, nil, nil, false, "last"},
		{ReportOnly, false, true, nil, nil, false, "found"},
		{ReportOnly, false, false, gone, nil, false, "found"},
	} {
		_, g := newPodNode(t, Settings{Policy: tt.policy})
		g.examiner.runtime = &confirming{runs: func(context.Context) (bool, error) { return tt.runs, tt.fault }}
		g.lister.fault = tt.lists
		w := examined("web", finding(report.Uncaptured, "last"))
		w.desired.hasController = !tt.alone
		w.seen = 7
		got := g.examiner.restore(t.Context(), nil, w, finding(report.Uncaptured, "found"))
		if w.evict != tt.want || got != finding(report.Uncaptured, tt.says) {
			t.Errorf("%+v: to be evicted: %v, %+v", tt, w.evict, got)
		}
		if looksAgain := w.seen == 0; looksAgain != (tt.says == "last") { // the pod may only be between two containers
			t.Errorf("%+v: the next examination compares everything: %v", tt, looksAgain)
		}
	}
}

// TestRunsPause makes no repair for a while after the runtime did not say whether a pod
// runs, or while it does not list its sandboxes. An error that comes at once concerns
// that pod alone.
func TestRunsPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShakyGuard()
		a := &confirming{shaky: s.shaky}
		c := s.examiner
		c.runtime = a
		ask := func(runs func(ctx context.Context) (bool, error), takes time.Duration, fails error) {
			t.Helper()
			a.runs = runs
			began := time.Now()
			got, err := c.runs(t.Context(), asking(true))
			if took := time.Since(began); took != takes || !errors.Is(err, fails) || got != (fails == nil) {
				t.Errorf("%v, %v after %s; want %v after %s", got, err, took, fails, takes)
			}
		}
		runs, gone := func(context.Context) (bool, error) { return true, nil }, errors.New("no such sandbox")
		ask(runs, 0, nil)
		ask(func(context.Context) (bool, error) { return false, gone }, 0, gone)
		ask(runs, 0, nil)
		ask(func(ctx context.Context) (bool, error) { <-ctx.Done(); return false, ctx.Err() }, runsTimeout, context.DeadlineExceeded)
		time.Sleep(runsPause - time.Millisecond)
		ask(runs, 0, context.DeadlineExceeded)
		time.Sleep(time.Millisecond)
		ask(runs, 0, nil)
		s.set(failingList)
		s.Round(t.Context())
		ask(runs, 0, s.lister.fault)
		if s.lister.fault == nil {
			t.Error("the listing has no fault")
		}
	})
}
