// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/lookup"
)

// outdatedPods returns a guard with pods that are outdated, by the version of their rules.
func outdatedPods(t *testing.T, update Update, versions ...int) *Guard {
	t.Helper()
	_, g := newPodNode(t, Settings{Update: update})
	for _, version := range versions {
		id := fmt.Sprint("v", version)
		g.watched[id] = examined(id, finding(report.Outdated, ""))
		g.watched[id].next = time.Now().Add(time.Hour)
		g.watched[id].desired.stamp = "capture-cni rules v5 ipv4 00"
		g.watched[id].baseline = baseline{Stamp: fmt.Sprintf("capture-cni rules v%d ipv4 00", version), Backend: config.NFTables, Digest: "4:00"}
	}
	return g
}

// turns returns the pods of a round.
func (g *Guard) turns(now time.Time) (ids []string) {
	for _, w := range g.due(now) {
		ids = append(ids, w.sandbox.Name)
		w.turn = false
	}
	slices.Sort(ids)
	return ids
}

// TestTurns has some pods at once, those of the oldest rules first, then one a second, and each
// again after pauses that double.
func TestTurns(t *testing.T) {
	t.Parallel()
	now := time.Now()
	g := outdatedPods(t, UpdateRules, 5, 2, 4, 1, 3, 0, 99)
	for _, step := range []struct {
		after time.Duration
		want  []string
	}{
		{0, []string{"v0", "v1", "v2", "v3", "v4"}},
		{0, nil},
		{time.Second - time.Millisecond, nil},
		{time.Second, []string{"v5"}},
		{10 * time.Second, []string{"v0", "v1", "v2", "v3", "v4"}},
	} {
		got := g.turns(now.Add(step.after))
		if !slices.Equal(got, step.want) {
			t.Errorf("after %s: %q, want %q", step.after, got, step.want)
		}
		for _, id := range got {
			g.watched[id].updates.add(now.Add(step.after))
		}
	}
	for after, want := range map[time.Duration]int{14*time.Second - 1: 1, 14 * time.Second: 5} { // v5 was tried once
		g.updates = newUpdateLimit()
		if got := g.turns(now.Add(after)); len(got) != want {
			t.Errorf("after %s: %q, want %d", after, got, want)
		}
	}
}

// TestTurn keeps a turn that a round had no time for, and takes no other from the limit.
func TestTurn(t *testing.T) {
	t.Parallel()
	now := time.Now()
	g := outdatedPods(t, UpdateRules, 1)
	for range 10 {
		if due := g.due(now); len(due) != 1 || !due[0].turn {
			t.Fatalf("due: %+v", due)
		}
	}
	if !g.updates.AllowN(now, updateBurst-1) {
		t.Error("one turn took more than one update from the limit")
	}
}

// TestWithoutTurn has pods that are not updated.
func TestWithoutTurn(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		update Update
		change func(w *watched)
		turn   bool
	}{
		"outdated":               {UpdateRules, func(*watched) {}, true},
		"never":                  {UpdateNever, func(*watched) {}, false},
		"no value":               {"", func(*watched) {}, false},
		"held by a fault":        {UpdateAnnotations, func(w *watched) { w.desired.held = true }, false},
		"captured":               {UpdateRules, func(w *watched) { w.finding.Code = report.Captured }, false},
		"drifted":                {UpdateRules, func(w *watched) { w.finding.Code = report.Drifted }, false},
		"iptables-legacy":        {UpdateRules, func(w *watched) { w.baseline.Backend = config.IPTablesLegacy }, true},
		"unread iptables-legacy": {UpdateRules, func(w *watched) { w.baseline.Backend, w.baseline.Digest = config.IPTablesLegacy, "" }, false},
		"unread iptables-nft":    {UpdateRules, func(w *watched) { w.baseline.Backend, w.baseline.Digest = config.IPTablesNFT, "" }, true},
	} {
		g := outdatedPods(t, tt.update, 1)
		tt.change(g.watched["v1"])
		if turn := len(g.turns(time.Now())) > 0; turn != tt.turn {
			t.Errorf("%s: it has a turn: %v", name, turn)
		}
	}
}

// TestAnnouncedOnce reports a pod as outdated only if its update fails, and that once.
func TestAnnouncedOnce(t *testing.T) {
	t.Parallel()
	g := outdatedPods(t, UpdateRules, 1)
	w := g.watched["v1"]
	g.report(w, report.Finding{})
	g.noteReported()
	if len(g.outbox.queue) > 0 || w.baseline.Reported {
		t.Errorf("before its update: %+v, reported %v", g.outbox.queue, w.baseline.Reported)
	}
	for _, w.failed = range []bool{true, false} {
		before := w.finding
		w.updates.add(time.Now())
		w.finding.Reason = "updating them failed: no"
		g.report(w, before)
		if len(g.outbox.queue) > 1 || len(g.outbox.queue) == 1 && !strings.Contains(g.outbox.queue[0].Message, w.finding.Reason) {
			t.Errorf("after its update failed: %+v", g.outbox.queue)
		}
		g.outbox.queue = nil
		g.noteReported()
	}
	if !w.baseline.Reported {
		t.Error("it is not reported")
	}
}

// TestFollowedEdits decides by edits of exclusions only with the value for it, and by none of a
// fault, which holds the pod's rules.
func TestFollowedEdits(t *testing.T) {
	t.Parallel()
	const (
		ranges, reroute = "traffic.sidecar.istio.io/includeOutboundIPRanges", "istio.io/reroute-virtual-interfaces"
		mode            = "sidecar.istio.io/interceptionMode"
	)
	type result struct{ changed, followed, followable, faulty, held bool }
	for name, tt := range map[string]struct {
		edited map[string]string
		want   map[Update]result
	}{
		"not edited": {nil, map[Update]result{UpdateRules: {}, UpdateAnnotations: {}}},
		"edited": {map[string]string{ranges: "10.0.0.0/8"}, map[Update]result{
			UpdateRules: {changed: true, followable: true}, UpdateAnnotations: {followed: true, followable: true},
		}},
		"edited in part": {map[string]string{ranges: "10.0.0.0/8", mode: "TPROXY"}, map[Update]result{
			UpdateRules: {changed: true, followable: true}, UpdateAnnotations: {changed: true, followed: true, followable: true},
		}},
		"exempted": {map[string]string{mode: "NONE"}, map[Update]result{UpdateRules: {changed: true}, UpdateAnnotations: {changed: true}}},
		"faulty": {map[string]string{ranges: "no range"}, map[Update]result{
			UpdateRules: {changed: true, faulty: true}, UpdateAnnotations: {changed: true, faulty: true, held: true},
		}},
		"too long": {map[string]string{ranges: list("10.%d.%d.0/24", 300)}, map[Update]result{
			UpdateRules: {changed: true, faulty: true}, UpdateAnnotations: {changed: true, faulty: true, held: true},
		}},
	} {
		for update, want := range tt.want {
			n, _ := newPodNode(t, Settings{})
			for _, annotations := range []map[string]string{n.pod.Annotations, n.sandbox.Annotations} {
				annotations[reroute] = list("net%d-%d", 300)
			}
			stamp := func() (string, result) {
				asked, err := newAsked(&lookup.Answer{Pod: &n.pod}, n.sandbox, config.DefaultSettings())
				lab.Check(t, err)
				d, err := asked.at([]netip.Addr{netip.MustParseAddr("192.0.2.2")}, update)
				lab.Check(t, err)
				return d.stamp, result{d.changed, d.followed, d.followable, d.faulty, d.held}
			}
			made, _ := stamp()
			maps.Copy(n.pod.Annotations, tt.edited)
			if now, got := stamp(); got != want || (now != made) != want.followed {
				t.Errorf("%s, %s: got %+v, want %+v", name, update, got, want)
			}
		}
	}
}

func list(format string, count int) string {
	var all []string
	for i := range count {
		all = append(all, fmt.Sprintf(format, i/100, i%100*2))
	}
	return strings.Join(all, ",")
}

// TestUpdateCounts counts the pods that each value would update.
func TestUpdateCounts(t *testing.T) {
	t.Parallel()
	g := outdatedPods(t, UpdateNever, 1, 2, 99)
	g.watched["v2"].desired.faulty = true
	for id, d := range map[string]desired{"edited": {followable: true}, "exempted": {}, "followed": {followable: true, followed: true}} {
		g.watched[id] = examined(id, finding(report.Changed, ""))
		g.watched[id].desired = d
	}
	g.watched["drifted"] = examined("drifted", finding(report.Drifted, "")) // a repair, and no update
	g.watched["drifted"].desired = desired{followable: true}
	if diff := gocmp.Diff(map[string]int{"rules": 2, "annotations": 2}, g.summarize(time.Now()).Updates); diff != "" {
		t.Error(diff)
	}
	g.watched["v1"].desired.followed = true
	if got := g.summarize(time.Now()).Updates["rules"]; got != 1 {
		t.Errorf("%d pods would get other rules for the same annotations, want 1", got)
	}
}

// TestVersionOf orders stamps of any version, and of none.
func TestVersionOf(t *testing.T) {
	t.Parallel()
	texts := []string{
		"without a stamp", capture.StampPrefix + "1 ipv4 00", capture.StampPrefix + "10 ipv4 00", capture.StampPrefix + "99999999999999999999 ipv4 00",
	}
	if !slices.IsSortedFunc(texts, func(a, b string) int { return cmp.Compare(versionOf(a), versionOf(b)) }) ||
		versionOf(texts[0]) != 0 || versionOf(texts[1]) != 1 || versionOf(texts[3]) == 0 {
		t.Errorf("not in order: %q", texts)
	}
}
