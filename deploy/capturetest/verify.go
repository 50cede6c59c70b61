// SPDX-License-Identifier: Apache-2.0

package capturetest

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/capture-cni/capture-cni/deploy/fleet"
	"github.com/capture-cni/capture-cni/install/report"
)

// verify compares the observations with the checks, and adds the result of each check to the report. It
// also adds a note that explains each pod whose capture has a problem.
func (r *run) verify(ctx context.Context, checks []check, observations []report.TestObservation) {
	observed := map[netip.AddrPort]report.TestObservation{}
	for _, o := range observations {
		observed[o.To] = o
	}
	nodes := map[string]string{report.TestClient: r.nodes[0].Name, report.TestServer: r.nodes[1].Name}
	explained := map[string]bool{}
	for _, c := range checks {
		found := c.verify(observed[c.to], r.mode)
		if pod := found.Subject; pod != "" {
			found.Next = "look at node " + nodes[pod] + " in kubectl capture-cni status -o wide; then at the report"
			if !explained[pod] {
				explained[pod] = true
				e := r.explain(ctx, pod)
				r.report.Notes = append(r.report.Notes, e.Finding.Code.Mark(
					fmt.Sprintf("%s: the %s's pod on node %s is %s: %s", r.mode, pod, nodes[pod], e.State, e.Finding.Reason)))
			}
		}
		r.add(c.family, c.name, found)
	}
}

// explain returns the agents' explanation of a pod whose capture failed.
func (r *run) explain(ctx context.Context, pod string) *fleet.Explanation {
	e, err := r.Explain(ctx, r.namespace, r.name(pod))
	if err != nil {
		return &fleet.Explanation{State: report.Unknown, Finding: report.Finding{
			Code: report.Unknown, Severity: report.NotKnown, Reason: err.Error(),
		}}
	}
	return e
}
