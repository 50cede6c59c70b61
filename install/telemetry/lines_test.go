// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"encoding/json"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// listener is a Listener of a socket to which no process sends.
func listener(socket string, events *Events) (*Listener, *lab.Log) {
	log := &lab.Log{}
	return New(Settings{Socket: socket}, prometheus.NewRegistry(), events, slog.New(slog.NewTextHandler(log, nil))), log
}

// TestLines logs one line of a record, with its warnings and notes, or none.
func TestLines(t *testing.T) {
	t.Parallel()
	pod := capture.PodRef{Namespace: "shop", Name: "web", UID: "u"}
	const of = ` pod=shop/web uid=u sandbox=c`
	exempt := capture.ExemptReason(capture.NoProxy)
	for name, tt := range map[string]struct {
		r    record.Record
		want string // with which the line goes on, after its time
	}{
		"captured":       {record.Record{Verdict: record.Captured, Backend: "nftables"}, `level=INFO msg=captured` + of + ` backend=nftables` + "\n"},
		"with a trace":   {record.Record{Verdict: record.Captured, Trace: "4bf9"}, `level=INFO msg=captured` + of + ` trace=4bf9 backend=""` + "\n"},
		"with a note":    {record.Record{Verdict: record.Captured, Notes: []string{"a"}}, `level=INFO msg=captured` + of + ` notes=[a] backend=""` + "\n"},
		"with a warning": {record.Record{Verdict: record.Captured, Warnings: []string{"a"}}, `level=INFO msg=captured` + of + ` warnings=[a] backend=""` + "\n"},
		"failed": {
			record.Record{Verdict: record.Failed, Reason: capture.ReasonLookup, Code: 11},
			`level=WARN msg="not captured, and not started"` + of + ` reason=lookup code=11`,
		},
		"outside": {record.Record{Verdict: record.Passed, Reason: capture.ReasonNotInjected}, ""},
		"outside, warned": {
			record.Record{Verdict: record.Passed, Reason: capture.ReasonNotInjected, Warnings: []string{"a"}},
			`level=WARN msg="not captured"` + of + ` warnings=[a]`,
		},
		"exempt":   {record.Record{Verdict: record.Passed, Reason: exempt}, `level=INFO msg="in the mesh, and exempt from capture"` + of},
		"repaired": {record.Record{Verdict: Repaired, Reason: Drifted}, `level=INFO msg="captured by the guard"` + of + ` found=drifted`},
		"found":    {record.Record{Verdict: Found, Reason: exempt, Warnings: []string{"a"}}, ""},
	} {
		l, log := listener("", nil)
		tt.r.Pod, tt.r.Sandbox = pod, "c"
		l.write(tt.r)
		_, got, _ := strings.Cut(log.String(), " ")
		if !strings.HasPrefix(got, tt.want) || tt.want == "" && got != "" {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

// TestDroppedLines counts lines in the next one, and only there.
func TestDroppedLines(t *testing.T) {
	t.Parallel()
	l, log := listener("", nil)
	l.skipped = 3
	for range 2 {
		l.write(captured)
	}
	if n := strings.Count(log.String(), `dropped="3 lines were dropped before this one`); n != 1 || strings.Count(log.String(), "dropped") != 2 {
		t.Errorf("logged %s", log)
	}
}

// TestReceived logs what is no record and what can't be kept, posts Events, and remembers an ADD with a warning
// and a note.
func TestReceived(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e, _ := newEvents(t)
	l, log := listener(filepath.Join(dir, "agent.sock"), e)
	lab.Check(t, makeDirectories(l.settings.Socket))
	warned := record.Record{
		Version: record.Version, Verdict: record.Passed, Reason: capture.ReasonNotInjected, Pod: captured.Pod, Sandbox: "warned",
		Warnings: []string{"a"}, Notes: []string{"b"},
	}
	document, err := json.Marshal(warned)
	lab.Check(t, err)
	l.receive(document, false)
	if _, err := LastRecord(HistoryDirectory(l.settings.Socket), warned.Pod.UID); err != nil || len(e.queue) != 2 {
		t.Errorf("a warning: %v, and %d Events", err, len(e.queue))
	}
	l.receive([]byte("{"), false)
	lab.Check(t, os.WriteFile(dir+"/file", nil, 0o600))
	l.settings.Socket = dir + "/file/agent.sock"
	l.receive(document, false)
	l.replay()
	for _, want := range []string{
		"discarding a malformed record", "writing to the history of ADDs failed", "making the directories of records failed", "reading the spooled records failed",
	} {
		if strings.Count(log.String(), want) != 1 {
			t.Errorf("not logged once: %s; %s", want, log)
		}
	}
}

// TestMetricsOfADDs has a bucket for each duration that a stage takes, and the version of the plugin that is installed.
func TestMetricsOfADDs(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	l := New(Settings{}, registry, nil, slog.New(slog.DiscardHandler))
	executable, err := os.Executable()
	lab.Check(t, err)
	for plugin, installed := range map[string]bool{executable: true, "/missing": false, "/etc/passwd": false} {
		l.metrics.showBuild(plugin)
		l.metrics.observe(record.Record{Stages: map[record.Stage]float64{record.Deciding: 0.001, record.Committing: 0.002}})
		families, err := registry.Gather()
		lab.Check(t, err)
		for _, family := range families {
			switch strings.TrimPrefix(family.GetName(), "capture_cni_") {
			case "build_info":
				labels := family.GetMetric()[0].GetLabel()
				if len(family.GetMetric()) != 1 || (labels[1].GetValue() != "none") != installed || labels[1].GetName() != "plugin" {
					t.Errorf("%s: %v", plugin, family.GetMetric())
				}
			case "add_seconds":
				if whole := family.GetMetric()[0].GetHistogram(); math.Abs(whole.GetSampleSum()/float64(whole.GetSampleCount())-.003) > 1e-9 {
					t.Errorf("whole ADDs: %v", whole)
				}
			case "add_stage_seconds":
				if buckets := family.GetMetric()[0].GetHistogram().GetBucket(); len(buckets) != 16 || buckets[0].GetUpperBound() != .0005 {
					t.Errorf("buckets %v", buckets)
				}
			}
		}
	}
}
