// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/install/telemetry"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// TestIsReported wants one record for each outdated pod: sent by this guard, or by an
// earlier one.
func TestIsReported(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		found                report.Code
		reported, sent, want bool
	}{
		{report.Outdated, false, false, false}, // the record is added after this, or waits for an agent
		{report.Outdated, false, true, true},
		{report.Outdated, true, false, true}, // by an earlier guard
		{report.Unknown, true, true, true},
		{report.Unknown, false, true, false},
		{report.Captured, true, true, false},
		{report.Drifted, true, true, false},
	} {
		if got := isReported(tt.found, tt.reported, tt.sent); got != tt.want {
			t.Errorf("%+v: got %v", tt, got)
		}
	}
}

// TestReport sends a finding once, each repair, and at each examination a request for the
// eviction of a pod that is marked for it.
func TestReport(t *testing.T) {
	t.Parallel()
	type sent map[record.Verdict]int
	silent := map[report.Code]bool{report.Captured: true, report.Exempt: true, report.Unknown: true}
	for _, policy := range Policies() {
		for _, state := range report.PodStates() {
			for _, tt := range []struct {
				name            string
				change          func(w *watched)
				repairs, evicts bool
			}{
				{"to stay", func(w *watched) { w.desired.hasController = true }, false, false},
				{"to be evicted", func(w *watched) { w.evict = lacksRules(state) }, false, lacksRules(state)},
				{"repaired", func(w *watched) { w.finding, w.repaired = finding(report.Captured, ""), report.Drifted }, true, false},
			} {
				socket := t.TempDir() + "/s"
				conn := lab.AgentSocket(t, socket)
				_, g := newPodNode(t, Settings{Policy: policy, Socket: socket})
				w := examined("web", finding(state, ""))
				tt.change(w)
				const examinations = 3
				before := report.Finding{}
				for range examinations {
					g.report(w, before)
					before = w.finding
				}
				g.outbox.send()
				want, got := sent{}, sent{}
				switch {
				case tt.repairs:
					want[telemetry.Repaired] = examinations
				case !silent[state]:
					want[telemetry.Found] = 1
				}
				if tt.evicts {
					want[telemetry.EvictionRequested] = examinations
				}
				for _, r := range receive(t, conn) {
					got[r.Verdict]++
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s, %s, %s: %s", policy, state, tt.name, diff)
				}
			}
		}
	}
}

// TestRepairIsReportedOnce examines a pod again after a repair: no second record tells of it.
func TestRepairIsReportedOnce(t *testing.T) {
	t.Parallel()
	_, g := newPodNode(t, Settings{Policy: InPlace, Socket: t.TempDir() + "/s"})
	w := examined("web", finding(report.Exempt, ""))
	w.sandbox.Namespace, w.repaired, w.evict = "excluded", report.Drifted, true
	if g.revisit(t.Context(), w); w.repaired != "" || w.evict || len(g.outbox.queue) > 0 {
		t.Errorf("repaired from %q, to be evicted: %v, and queued %+v", w.repaired, w.evict, g.outbox.queue)
	}
}
