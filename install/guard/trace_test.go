// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"slices"
	"testing"

	"github.com/capture-cni/capture-cni/install/kernel"
	"github.com/capture-cni/capture-cni/install/report"
)

// TestDoubts has what keeps a trace from being certain: a state in which other rules may
// decide, and chains that a packet meets first, as many as are printed.
func TestDoubts(t *testing.T) {
	t.Parallel()
	var hooks, many []string
	for i := range report.MaxDoubts + 2 {
		hooks = append(hooks, fmt.Sprint("chain ", i))
		many = append(many, "other rules can affect the packet: "+hooks[i])
	}
	const drifted = "the pod is drifted: a rule more"
	for name, tt := range map[string]struct {
		state  report.Code
		traced kernel.Traced
		want   []string
	}{
		"captured":     {report.Captured, kernel.Traced{}, nil},
		"changed":      {report.Changed, kernel.Traced{}, nil},
		"obstructed":   {report.Obstructed, kernel.Traced{Hooks: hooks[:1]}, many[:1]},
		"drifted":      {report.Drifted, kernel.Traced{}, []string{drifted}},
		"not all read": {report.Drifted, kernel.Traced{Hooks: hooks[:1], Unread: "too many rules"}, []string{drifted, "other tables are not read: too many rules"}},
		"as many":      {report.Captured, kernel.Traced{Hooks: hooks[:report.MaxDoubts]}, many[:report.MaxDoubts]},
		"more":         {report.Captured, kernel.Traced{Hooks: hooks}, append(slices.Clone(many[:report.MaxDoubts]), "and 2 more")},
	} {
		if got := doubtsAbout(finding(tt.state, "a rule more"), tt.traced); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// TestLastFinding repeats a finding, and says of a pod without one that it
// has ended.
func TestLastFinding(t *testing.T) {
	t.Parallel()
	for found, want := range map[report.Finding]report.Finding{
		finding(report.Captured, "repaired"): finding(report.Captured, "repaired"),
		{}:                                   {Code: report.Unknown, Severity: report.NotKnown, Reason: "the pod has ended"},
	} {
		if got := examined("web", found).lastFinding(); got != want {
			t.Errorf("%+v: %+v, want %+v", found, got, want)
		}
	}
}
