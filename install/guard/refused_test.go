// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/install/kernel"
	"github.com/capture-cni/capture-cni/install/report"
)

// seenNamespace is a Namespace that can only be observed. Any change of it panics.
type seenNamespace struct {
	Namespace
	found kernel.Observation
}

func (n seenNamespace) Is(string) bool   { return true }
func (n seenNamespace) LockFault() error { return nil }
func (n seenNamespace) Close() error     { return nil }
func (n seenNamespace) Observe(context.Context, kernel.Question) (kernel.Observation, error) {
	return n.found, nil
}

// TestRefusedPod reports a pod that the plugin would refuse, and that has no rules, as uncaptured, and has it
// evicted, because it may have started without the plugin. No rules are known by which to repair it.
func TestRefusedPod(t *testing.T) {
	t.Parallel()
	gone := func(o *kernel.Observation) { o.Backend, o.Stamp, o.Digest = "", "", "" }
	foreign := func(o *kernel.Observation) { o.Foreign = "nat/ISTIO_OUTPUT" }
	for name, tt := range map[string]struct {
		policy Policy
		found  kernel.Observation
		want   report.Code
		evict  bool
	}{
		"no rules, evict":          {Evict, observed(gone), report.Uncaptured, true},
		"no rules, inPlace":        {InPlace, observed(gone), report.Uncaptured, false},
		"no rules, report":         {ReportOnly, observed(gone), report.Uncaptured, false},
		"our rules":                {Evict, observed(), report.Unknown, false},
		"another plugin's rules":   {Evict, observed(gone, foreign), report.Unknown, false},
		"rules that can't be read": {Evict, observed(gone, func(o *kernel.Observation) { o.RulesFault = context.Canceled }), report.Unknown, false},
	} {
		for fault, annotations := range map[string]map[string]string{
			"no range": {"traffic.sidecar.istio.io/includeOutboundIPRanges": "no range"}, "no usable address": nil,
		} {
			n, g := newPodNode(t, Settings{Policy: tt.policy})
			g.examiner.runtime = &confirming{runs: func(context.Context) (bool, error) { return true, nil }}
			g.examiner.node.Open = func(context.Context, string) (Namespace, error) { return seenNamespace{found: tt.found}, nil }
			for key, value := range annotations {
				n.sandbox.Annotations[key] = value
			}
			w := &watched{sandbox: n.sandbox}
			got, _ := g.examiner.examine(t.Context(), w, nil)
			if got.Code != tt.want || !strings.Contains(got.Reason, fault) || w.evict != tt.evict {
				t.Errorf("%s, %s: %+v, to be evicted: %v", name, fault, got, w.evict)
			}
		}
	}
}
