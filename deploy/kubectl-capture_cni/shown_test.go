// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/deploy/fleet"
	"github.com/capture-cni/capture-cni/deploy/precheck"
	"github.com/capture-cni/capture-cni/install/report"
)

// TestCodesAreExplained expects the URL of the page about codes only in an output that contains codes.
func TestCodesAreExplained(t *testing.T) {
	t.Parallel()
	status := func(f fleet.Fleet) func(io.Writer) {
		return func(out io.Writer) { (&options{}).writeStatus(out, &f) }
	}
	check := func(severities ...report.Severity) func(io.Writer) {
		var found precheck.Report
		for _, severity := range severities {
			found.Results = append(found.Results, report.Finding{Code: "the-code", Severity: severity, Subject: "a", Reason: "b"})
		}
		return func(out io.Writer) { writePrecheck(out, &found) }
	}
	good, faulty, missing := []fleet.Node{{State: fleet.Ready}}, []fleet.Node{{State: fleet.Faulty}}, []fleet.Pod{{State: report.Uncaptured}}
	for name, tt := range map[string]struct {
		write func(io.Writer)
		want  bool
	}{
		"a good fleet":             {status(fleet.Fleet{Nodes: good, Pods: []fleet.Pod{{State: report.Captured}}}), false},
		"a node":                   {status(fleet.Fleet{Nodes: faulty}), true},
		"a pod":                    {status(fleet.Fleet{Pods: missing}), true},
		"a node and a pod":         {status(fleet.Fleet{Nodes: faulty, Pods: missing}), true},
		"a node and a permission":  {status(fleet.Fleet{Nodes: faulty, Unknown: []string{"x"}}), true},
		"a node and a note":        {status(fleet.Fleet{Nodes: faulty, Notes: []string{"x"}}), true},
		"a good cluster":           {check(report.OK, report.OK), false},
		"a cluster with a problem": {check(report.OK, report.Problem), true},
		"a cluster with a note":    {check(report.Note), true},
	} {
		var out strings.Builder
		tt.write(newScreen(&out))
		hasPage, hasCode := strings.Contains(out.String(), "\nCodes: "), strings.Contains(out.String(), "b [the-code]")
		if hasPage != tt.want || strings.Contains(name, "cluster") && hasCode != tt.want {
			t.Errorf("%s:\n%s", name, out.String())
		}
	}
}

// TestWarningIsShownOnce has an API server that adds the same warning to each answer. The command prints
// the warning once.
func TestWarningIsShownOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.addNode("node-1", time.Minute, state(&report.Pods{}))
	c.hostile = "a warning"
	if _, errors, status := c.run(t, "status"); status != 0 || strings.Count(errors, "Warning: from right?") != 1 {
		t.Errorf("status %d: %s", status, errors)
	}
}
