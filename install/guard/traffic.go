// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"fmt"
	"slices"

	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/kernel"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/install/trace"
)

// reading contains the counters of a pod's rules when the guard last read them.
type reading struct {
	stamp    string // of the rules; empty until the guard has read or written the rules
	counters kernel.Counters
	surplus  tally // connections that the metric counted too often, because a packet passed between two parts of a reading
}

type tally map[trace.Outcome]int64

// maxTallied limits the growth of one counter between two readings. A pod with NET_ADMIN can give its
// counters any value, and a huge value would hide the connections of other pods.
const maxTallied = 1 << 32

// tallied returns the numbers of connections between two readings of the same counters. It ignores a
// counter that grew by more than maxTallied.
func tallied(meters []trace.Meter, last, now kernel.Counters) tally {
	since := tally{}
	for _, m := range meters {
		packets := now.Of(m) - last.Of(m)
		switch {
		case packets > maxTallied:
		case m.Negative:
			since[m.Of] -= int64(packets)
		default:
			since[m.Of] += int64(packets)
		}
	}
	return since
}

// countTraffic adds the connections since the last reading to the node's metric, if the pod has exactly
// the desired rules in nftables. If the stamp changed or a counter went down, it takes the counters to
// have begun at 0 again. The connections of a pod that ran before the guard are counted from the first
// reading on, or from the guard's repair or update on.
func (e *examiner) countTraffic(w *watched, o kernel.Observation) {
	if !w.exact || o.Generation == 0 || o.CountersFault != nil {
		return
	}
	meters, last := e.metersOf(&w.desired), w.reading
	w.reading = reading{w.desired.stamp, o.Counters, tally{}}
	if last.stamp == "" && w.older {
		return
	}
	wentDown := func(m trace.Meter) bool { return o.Counters.Of(m) < last.counters.Of(m) }
	if last.stamp != w.desired.stamp || slices.ContainsFunc(meters, wentDown) {
		last.counters = nil
	}
	for of, count := range tallied(meters, last.counters, o.Counters) {
		if count -= last.surplus[of]; count < 0 {
			w.reading.surplus[of] = -count
			continue
		}
		e.metrics.connections.WithLabelValues(of.Decision, of.Reason, string(w.desired.mesh)).Add(float64(count))
	}
}

// maxMeters limits the number of Rulesets whose meters are cached. The meters of the largest Ruleset
// take 130 KiB.
const maxMeters = 128

// metersOf returns the meters of a pod's desired rules, which it caches by the rules' stamp.
func (e *examiner) metersOf(d *desired) []trace.Meter {
	known, ok := e.meters[d.stamp]
	if !ok {
		if len(e.meters) >= maxMeters {
			clear(e.meters)
		}
		known = trace.Meters(d.rules())
		e.meters[d.stamp] = known
	}
	return known
}

// Traffic returns the numbers of connections of all running pods of the mesh or, with a name, of one of
// them. With the policy ReportOnly, it changes nothing. Errors: ErrNotHere, also for a pod outside the
// mesh.
func (g *Guard) Traffic(ctx context.Context, namespace, name string) ([]report.Traffic, error) {
	sandboxes, err := g.runtime.Sandboxes(ctx)
	if err != nil {
		return nil, err
	}
	g.asker.askInjected(ctx)
	all := []report.Traffic{}
	for _, sandbox := range sandboxes {
		if g.asker.isMeshed(sandbox) && (name == "" || sandbox.Namespace == namespace && sandbox.Name == name) {
			all = append(all, g.trafficOf(ctx, sandbox))
		}
	}
	if name != "" && len(all) == 0 {
		return nil, fmt.Errorf("%w, or it is not in the mesh: %s/%s", ErrNotHere, namespace, name)
	}
	return all, nil
}

func (g *Guard) trafficOf(ctx context.Context, sandbox cri.Sandbox) report.Traffic {
	w := &watched{sandbox: sandbox, mesh: g.asker.meshOf(sandbox), baseline: g.store.load(sandbox.ID), older: true}
	found, o := g.examiner.examine(ctx, w, nil)
	t := report.Traffic{Namespace: sandbox.Namespace, Name: sandbox.Name, Mesh: w.mesh, State: found.Code}
	switch {
	case o.CountersFault != nil:
		t.Unknown = o.CountersFault.Error()
	case !w.exact:
		t.Unknown = doubtOf(found)
	default:
		count := tallied(g.examiner.metersOf(&w.desired), nil, o.Counters)
		for _, of := range trace.Outcomes() {
			if count[of] > 0 {
				t.Connections = append(t.Connections, report.Connections{Decision: of.Decision, Reason: of.Reason, Count: count[of]})
			}
		}
	}
	return t
}
