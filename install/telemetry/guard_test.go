// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// of returns a record of a pod of its own, named as its UID.
func of(name string, r record.Record) record.Record {
	r.Pod, r.Time = capture.PodRef{Namespace: "shop", Name: name, UID: name}, time.Now()
	return r
}

// expectAllReceived returns when all that was sent before was taken: a Listener
// takes one after the other.
func (a *agent) expectAllReceived(t *testing.T) {
	t.Helper()
	marker := record.Record{Pod: capture.PodRef{Name: "marker"}, Verdict: record.Failed, Reason: capture.ReasonKernel}
	a.expectReceived(t, marker)
	a.expect(t, 1, "adds_total", "result=failed", "reason=kernel")
}

var (
	repaired  = record.Record{Verdict: Repaired, Reason: Uncaptured, Message: "it is captured now"}
	found     = record.Record{Verdict: Found, Reason: Drifted, Message: "it is not captured"}
	updated   = record.Record{Verdict: Updated, Reason: Outdated, Message: "its rules were updated"}
	requested = record.Record{Verdict: EvictionRequested, Reason: Uncaptured, Message: "it is to go"}
)

// TestRemembers the last ADD of a pod that was captured or should have been,
// not what the guard saw since, and no pod that is none of ours.
func TestRemembers(t *testing.T) {
	t.Parallel()
	a := start(t, newSocket(t))
	warned := passed
	warned.Warnings = []string{"an annotation is misspelt"}
	heard := map[string][]record.Record{
		"captured": {captured}, "failed": {failed}, "passed": {passed}, "warned": {warned},
		"at-last": {failed, captured}, "repaired": {repaired}, "found": {found}, "doomed": {requested},
		"found-later": {captured, found, requested, repaired, updated}, "passed-later": {captured, passed},
	}
	for name, records := range heard {
		for _, r := range records {
			a.expectReceived(t, of(name, r))
		}
	}
	a.expectAllReceived(t)
	want := map[string]record.Verdict{
		"captured": record.Captured, "failed": record.Failed, "warned": record.Passed,
		"at-last": record.Captured, "found-later": record.Captured, "passed-later": record.Captured,
	}
	for name := range heard {
		r, err := LastRecord(HistoryDirectory(a.socket), name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) || r.Verdict != want[name] {
			t.Errorf("%s: remembered as %q, %v, want %q", name, r.Verdict, err, want[name])
		}
	}
}

// TestGuardIsNoADD counts nothing of what the guard sends among the ADDs, and
// has a line only of what was not in the guard's own log.
func TestGuardIsNoADD(t *testing.T) {
	t.Parallel()
	a := start(t, newSocket(t))
	for _, r := range []record.Record{repaired, updated, found, requested} {
		a.expectReceived(t, of("web", r))
	}
	a.expectAllReceived(t)
	families, err := a.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series, total := 0, 0.0
	for _, family := range families {
		if family.GetName() != "capture_cni_adds_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			total += m.GetCounter().GetValue()
			series++
		}
	}
	if want := len(Reasons(record.Captured)) + len(Reasons(record.Passed)) + len(Reasons(record.Failed)); series != want || total != 1 {
		t.Errorf("%v ADDs in %d series, want the marker in %d", total, series, want)
	}
	a.expect(t, 0, "records_lost_total", "cause=form")
	log := a.log.String()
	if !strings.Contains(log, repaired.Message) || !strings.Contains(log, updated.Message) || strings.Contains(log, found.Message) || strings.Contains(log, requested.Message) {
		t.Errorf("log %s", log)
	}
}

// TestEvictsOnRequest and no other pod, though it is not captured either.
func TestEvictsOnRequest(t *testing.T) {
	t.Parallel()
	asked := make(chan capture.PodRef, 16)
	a := start(t, newSocket(t), func(s *Settings) { s.Evict = func(pod capture.PodRef) { asked <- pod } })
	drifted := requested
	drifted.Reason = Drifted
	for _, r := range []record.Record{
		of("captured", captured), of("passed", passed), of("failed", failed), of("found", found), of("repaired", repaired),
		of("doomed", requested), of("drifted", drifted), of("doomed", requested),
	} {
		a.expectReceived(t, r)
	}
	send(t, a.socket, `{"version": 1, "verdict": "doomed", "reason": "foreign", "pod": {"namespace": "shop", "name": "foreign", "uid": "foreign"}}`)
	a.expectAllReceived(t)
	var got []capture.PodRef
	for len(asked) > 0 {
		got = append(got, <-asked)
	}
	pod := func(name string) capture.PodRef { return capture.PodRef{Namespace: "shop", Name: name, UID: name} }
	if diff := cmp.Diff([]capture.PodRef{pod("doomed"), pod("drifted"), pod("doomed")}, got); diff != "" {
		t.Error(diff)
	}
	a.expect(t, 1, "records_lost_total", "cause=form")
}

// TestEvictsNone receives requests like any other record where evictions are disabled.
func TestEvictsNone(t *testing.T) {
	t.Parallel()
	a := start(t, newSocket(t))
	a.expectReceived(t, of("web", requested))
	a.expectAllReceived(t)
	a.expect(t, 0, "records_lost_total", "cause=form")
}
