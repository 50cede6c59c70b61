// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// newSummarizing returns a guard that has listed a node's pods, with one in each of
// three states and one that it has not examined.
func newSummarizing(t *testing.T) *Guard {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "guard")
	g := &Guard{settings: Settings{BaselineDir: dir}, store: store{dir}, lister: &lister{}, once: newOnceLog(slog.New(slog.DiscardHandler)), watched: map[string]*watched{
		"captured": examined("captured", finding(report.Captured, "")),
		"broken":   examined("broken", finding(report.Uncaptured, "no rules")),
		"exempt":   examined("exempt", finding(report.Exempt, "")),
		"new":      examined("new", report.Finding{}),
	}}
	g.watched["exempt"].desired.exemption.Cause = capture.NoProxy
	g.watched["captured"].repairs.add(time.Now().Add(-59 * time.Minute))
	g.watched["exempt"].repairs.add(time.Now().Add(-61 * time.Minute))
	g.lister.last = time.Now()
	return g
}

// TestSummary writes what the agent reads, and keeps it when sandboxes have ended.
func TestSummary(t *testing.T) {
	t.Parallel()
	g := newSummarizing(t)
	if _, err := ReadSummary(g.store.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("before the first summary: %v", err)
	}
	g.writeSummary(time.Now())
	if err := g.store.prune(map[string]cri.Sandbox{}); err != nil {
		t.Fatal(err)
	}
	got, err := ReadSummary(g.store.dir)
	if err != nil {
		t.Fatal(err)
	}
	namespace := g.watched["broken"].sandbox.Namespace
	want := report.Pods{
		States: map[report.Code]int{"captured": 1, "uncaptured": 1, "exempt": 1}, Exempt: map[capture.ExemptionCause]int{"no_proxy": 1},
		Named:    []report.NamedPod{{Namespace: namespace, Name: "broken", State: "uncaptured"}, {Namespace: namespace, Name: "exempt", State: "exempt", Cause: "no_proxy"}},
		Repaired: 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestSummaryVersions names the version of a pod's rules, unless the pod has written an impossible one.
func TestSummaryVersions(t *testing.T) {
	t.Parallel()
	g := newSummarizing(t)
	for version, want := range map[string]int{"1": 1, "9999": 9999, "10000": 0, "0": 0, "-1": 0, "x": 0, strings.Repeat("9", 30): 0} {
		g.watched["broken"].baseline.Stamp = capture.StampPrefix + version + " 0123"
		pods := g.summarize(time.Now())
		i := slices.IndexFunc(pods.Named, func(p report.NamedPod) bool { return p.Name == "broken" })
		if got := pods.Named[i].Rules; got != want {
			t.Errorf("version %s is shown as %d, want %d", version, got, want)
		}
	}
}

// TestUpdateValues accepts the values of guard.update.
func TestUpdateValues(t *testing.T) {
	t.Parallel()
	for text, works := range map[string]bool{"never": true, "rules": true, "annotations": true, "": false, "Rules": false, "always": false} {
		var u Update
		if err := u.Set(text); (err == nil) != works || u.isOn() != (text == "rules" || text == "annotations") {
			t.Errorf("%q: %v, on is %v", text, err, u.isOn())
		}
	}
}

// TestSummaryIsPaced writes on a change, at most every two seconds, and every half a
// minute without one.
func TestSummaryIsPaced(t *testing.T) {
	t.Parallel()
	g := newSummarizing(t)
	begin := time.Now()
	for _, step := range []struct {
		at      time.Duration
		change  bool
		written bool
	}{
		{0, false, true},
		{time.Second, true, false},
		{2 * time.Second, false, true},
		{10 * time.Second, false, false},
		{32 * time.Second, false, true},
		{-time.Hour, false, true}, // the clock was set back
	} {
		if step.change {
			g.watched["broken"].finding = finding(report.Captured, "")
		}
		before := g.summary.at
		g.writeSummary(begin.Add(step.at))
		if written := !g.summary.at.Equal(before); written != step.written {
			t.Errorf("after %s: written is %v", step.at, written)
		}
	}
}

// TestOldSummary is not read: its guard has ended or hangs.
func TestOldSummary(t *testing.T) {
	t.Parallel()
	g := newSummarizing(t)
	g.lister.last = time.Time{}
	g.writeSummary(time.Now())
	if _, err := ReadSummary(g.store.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a listing: %v", err)
	}
	g.lister.last = time.Now()
	g.writeSummary(time.Now())
	old := time.Now().Add(-summaryAge - time.Second)
	if err := os.Chtimes(filepath.Join(g.store.dir, summaryFile), old, old); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadSummary(g.store.dir); !errors.Is(err, ErrNoGuard) {
		t.Errorf("of a guard that has ended: %v", err)
	}
	if err := os.Chmod(g.store.dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadSummary(g.store.dir); err == nil || errors.Is(err, ErrNoGuard) {
		t.Errorf("in a directory that any user can write to: %v", err)
	}
}

// TestSummaryKnows lists which pods it counts, and those of them that were repaired within an
// hour.
func TestSummaryKnows(t *testing.T) {
	t.Parallel()
	now := time.Now()
	g := newSummarizing(t)
	g.watched["broken"].repairs.add(now.Add(-time.Hour))
	g.watched["captured"].repairs = streak{last: now} // none
	pods := g.summarize(now)
	slices.Sort(pods.Known)
	if !slices.Equal(pods.Known, []string{"uid-of-b", "uid-of-c", "uid-of-e"}) || pods.Repaired != 0 {
		t.Errorf("it knows %q, %d of them repaired", pods.Known, pods.Repaired)
	}
	g.watched["broken"].repairs.last = now.Add(-time.Hour + 1)
	if pods := g.summarize(now); pods.Repaired != 1 {
		t.Errorf("%d repaired within the hour", pods.Repaired)
	}
	var log strings.Builder
	g.once, g.store = newOnceLog(slog.New(slog.NewTextHandler(&log, nil))), store{filepath.Join(g.store.dir, "missing", "guard")}
	g.writeSummary(now)
	if !strings.Contains(log.String(), "writing the states of the pods for the agent failed; retrying") {
		t.Errorf("logged %q", log.String())
	}
}

// TestPrunedAgain tries again to delete baselines of pods that have ended, until it succeeds.
func TestPrunedAgain(t *testing.T) {
	t.Parallel()
	g := newSummarizing(t)
	g.watched = map[string]*watched{}
	obstacle := filepath.Join(g.store.dir, "ended", "within")
	lab.Check(t, os.MkdirAll(obstacle, 0o700))
	if g.sync(nil); g.pruned {
		t.Error("nothing is left to delete, although a directory is in the way")
	}
	lab.Check(t, os.Remove(obstacle))
	if g.sync(nil); !g.pruned {
		t.Error("the baselines stay")
	}
	if doubt := doubtOf(finding(report.Captured, "")); strings.HasSuffix(doubt, ": ") {
		t.Errorf("a doubt without a reason: %q", doubt)
	}
}
