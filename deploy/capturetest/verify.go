// SPDX-License-Identifier: Apache-2.0

package capturetest

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/capture-cni/capture-cni/deploy/fleet"
	"github.com/capture-cni/capture-cni/install/terms"
	"github.com/capture-cni/capture-cni/install/testwire"
)

// verify adds the result of each check to the report.
func (r *run) verify(ctx context.Context, checks []check, observations []testwire.Observation) {
	observed := map[netip.AddrPort]testwire.Observation{}
	for _, o := range observations {
		observed[o.To] = o
	}
	explained := map[string]bool{}
	for _, c := range checks {
		result := Result{Mode: r.mode, Family: c.family, Check: c.name, Verdict: Passed}
		if c.skip != "" {
			result.Verdict, result.Cause = Skipped, c.skip
		} else if wrong, ok := c.verify(observed[c.to], r.mode); !ok {
			result.Verdict, result.Cause = Failed, wrong.cause
			result.Next = r.nextFor(wrong.pod)
			if wrong.pod != "" && !explained[wrong.pod] {
				explained[wrong.pod] = true
				r.explain(ctx, wrong.pod)
			}
		}
		r.report.Results = append(r.report.Results, result)
	}
}

// nextFor returns the next step for a connection that failed by a pod's capture or, with an
// empty pod, by neither.
func (r *run) nextFor(pod string) string {
	if pod == "" {
		return "look for a NetworkPolicy or a firewall between the nodes; if there is none: the report"
	}
	return "look at node " + r.nodeOf(pod) + " in kubectl capture-cni status -o wide; then at the report"
}

func (r *run) nodeOf(pod string) string {
	if pod == testwire.Server {
		return r.nodes[1].Name
	}
	return r.nodes[0].Name
}

// explain adds what the agents say of a pod whose capture failed.
func (r *run) explain(ctx context.Context, pod string) {
	e, err := r.Explain(ctx, r.namespace, r.name(pod))
	if err != nil {
		e = &fleet.Explanation{State: terms.Unknown, Cause: err.Error()}
	}
	r.report.Notes = append(r.report.Notes, fmt.Sprintf("%s: the %s's pod on node %s is %s: %s", r.mode, pod, r.nodeOf(pod), e.State, e.Cause))
}
