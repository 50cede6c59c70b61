// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/capture-cni/capture-cni/install/report"
)

// TestPreflightAtStart logs and counts problems by severity.
func TestPreflightAtStart(t *testing.T) {
	t.Parallel()
	k, registry, log := loggingKeeper()
	k.logProblems(t.Context(), func(context.Context) report.Findings {
		note := report.Finding{Code: report.SELinux, Severity: report.Note, Reason: "b is old", Next: "look at it"}
		return report.Findings{{Code: report.DirectoryMissing, Severity: report.Problem, Reason: "a is missing", Next: "mount it"}, note, note}
	})
	for _, want := range []string{`level=WARN msg="preflight found a problem" problem="a is missing" do="mount it"`, `level=INFO msg="preflight has a note" problem="b is old"`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, log)
		}
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == "capture_cni_preflight_problems" {
				got[metric.GetLabel()[0].GetValue()] = metric.GetGauge().GetValue()
			}
		}
	}
	if diff := cmp.Diff(map[string]float64{"serious": 1, "note": 2}, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

// TestPreflightFails has checks that fail, and others that never end: the agent goes on,
// and ends when it should.
func TestPreflightFails(t *testing.T) {
	t.Parallel()
	for want, check := range map[string]func(context.Context) report.Findings{
		"the checks of preflight failed":         func(context.Context) report.Findings { panic("no such thing") },
		"the checks of preflight did not finish": func(context.Context) report.Findings { time.Sleep(time.Hour); return nil },
	} {
		k, _, log := loggingKeeper()
		synctest.Test(t, func(t *testing.T) { // in which the timeout passes at once
			started := time.Now()
			k.logProblems(t.Context(), check)
			if took := time.Since(started); took > preflightTimeout {
				t.Errorf("%s: the agent waited %s", want, took)
			}
			time.Sleep(2 * time.Hour) // until the check has ended
		})
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, log)
		}
	}
}

func loggingKeeper() (*Keeper, *prometheus.Registry, *bytes.Buffer) {
	var log bytes.Buffer
	registry := prometheus.NewRegistry()
	logger := slog.New(slog.NewTextHandler(&log, nil))
	return NewKeeper(New(Settings{}, nil, nil, logger), func() error { return nil }, registry, logger), registry, &log
}
