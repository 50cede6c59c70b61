// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"slices"
	"testing"

	"github.com/capture-cni/capture-cni/install/explain"
	"github.com/capture-cni/capture-cni/install/kernel"
	"github.com/capture-cni/capture-cni/install/terms"
)

// TestDoubts has what keeps a trace from being certain: a state in which other rules may
// decide, and chains that a packet meets first, as many as are printed.
func TestDoubts(t *testing.T) {
	t.Parallel()
	var hooks, many []string
	for i := range explain.MaxDoubts + 2 {
		hooks = append(hooks, fmt.Sprint("chain ", i))
		many = append(many, "the packet meets other rules first: "+hooks[i])
	}
	const drifted = "the pod is drifted: a rule more"
	for name, tt := range map[string]struct {
		state  terms.State
		traced kernel.Traced
		want   []string
	}{
		"captured":     {terms.Captured, kernel.Traced{}, nil},
		"changed":      {terms.Changed, kernel.Traced{}, nil},
		"obstructed":   {terms.Obstructed, kernel.Traced{Hooks: hooks[:1]}, many[:1]},
		"drifted":      {terms.Drifted, kernel.Traced{}, []string{drifted}},
		"not all read": {terms.Drifted, kernel.Traced{Hooks: hooks[:1], Unread: "too many rules"}, []string{drifted, "other tables are not read: too many rules"}},
		"as many":      {terms.Captured, kernel.Traced{Hooks: hooks[:explain.MaxDoubts]}, many[:explain.MaxDoubts]},
		"more":         {terms.Captured, kernel.Traced{Hooks: hooks}, append(slices.Clone(many[:explain.MaxDoubts]), "and 2 more")},
	} {
		if got := doubtsAbout(Finding{State: tt.state, Reason: "a rule more"}, tt.traced); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// TestLastFinding repeats a finding without its repair, and says of a pod without one that it
// has ended.
func TestLastFinding(t *testing.T) {
	t.Parallel()
	for found, want := range map[Finding]Finding{
		{State: terms.Captured, Reason: "repaired", Repaired: terms.Drifted}: {State: terms.Captured, Reason: "repaired"},
		{}: {State: terms.Unknown, Reason: "the pod has ended"},
	} {
		if got := examined("web", found).lastFinding(); got != want {
			t.Errorf("%+v: %+v, want %+v", found, got, want)
		}
	}
}
