// SPDX-License-Identifier: Apache-2.0

package capturetest

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/capture-cni/capture-cni/deploy/fleet"
	"github.com/capture-cni/capture-cni/install/report"
)

// verify adds the result of each check to the report.
func (r *run) verify(ctx context.Context, checks []check, observations []report.TestObservation) {
	observed := map[netip.AddrPort]report.TestObservation{}
	for _, o := range observations {
		observed[o.To] = o
	}
	nodes := map[string]string{report.TestClient: r.nodes[0].Name, report.TestServer: r.nodes[1].Name}
	explained := map[string]bool{}
	for _, c := range checks {
		result := Result{Client: r.nodes[0].Name, Server: r.nodes[1].Name, Mode: r.mode, Family: c.family, Check: c.name, Verdict: Passed}
		if c.skip != "" {
			result.Verdict, result.Cause = Skipped, c.skip
		} else if wrong, ok := c.verify(observed[c.to], r.mode); !ok {
			result.Verdict, result.Cause = Failed, wrong.cause
			result.Next = "look for a NetworkPolicy or a firewall between the nodes; if there is none: the report"
			if wrong.pod != "" {
				result.Next = "look at node " + nodes[wrong.pod] + " in kubectl capture-cni status -o wide; then at the report"
			}
			if wrong.pod != "" && !explained[wrong.pod] {
				explained[wrong.pod] = true
				e := r.explain(ctx, wrong.pod)
				r.report.Notes = append(r.report.Notes,
					fmt.Sprintf("%s: the %s's pod on node %s is %s: %s", r.mode, wrong.pod, nodes[wrong.pod], e.State, e.Finding.Reason))
			}
		}
		r.report.Results = append(r.report.Results, result)
	}
}

// explain returns what the agents say of a pod whose capture failed.
func (r *run) explain(ctx context.Context, pod string) *fleet.Explanation {
	e, err := r.Explain(ctx, r.namespace, r.name(pod))
	if err != nil {
		return &fleet.Explanation{State: report.Unknown, Finding: report.Finding{
			Code: report.Unknown, Severity: report.NotKnown, Reason: err.Error(),
		}}
	}
	return e
}
