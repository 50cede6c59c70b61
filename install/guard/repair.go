// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/kernel"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

// repair repairs a pod, unless a limit forbids it, and returns the finding after that.
func (e *examiner) repair(ctx context.Context, netns Namespace, w *watched, found report.Finding) report.Finding {
	if refusal := e.limits.refusal(&w.repairs, time.Now()); refusal != "" {
		found.Reason += "; " + refusal
		return found
	}
	if w.repairs.add(time.Now()) {
		e.metrics.repeated.Inc()
		found.Reason += fmt.Sprintf("; attempt %d in a row to repair it", w.repairs.count)
	}
	// The pod may have ended in the meantime, and the path of its namespace may lead to another pod's.
	lost, err := error(nil), errors.New("the pod has ended")
	if netns.Is(w.sandbox.NetNS) {
		if lost, err = netns.Replace(ctx, w.desired.rules()); err != nil {
			err = fmt.Errorf("applying its rules: %w", err)
		}
	}
	if err != nil {
		e.metrics.repairs.WithLabelValues(failed).Inc()
		found.Reason += "; repairing it failed: " + podnet.Explained(err).Error()
		return found
	}
	e.metrics.repairs.WithLabelValues(done).Inc()
	w.reading = reading{stamp: w.desired.stamp}
	if found.Code == report.Uncaptured && !w.baseline.isKnown() {
		e.metrics.uncaptured.WithLabelValues(string(w.desired.mesh)).Observe(time.Since(w.sandbox.Created).Seconds())
	}
	w.baseline, w.repaired = baseline{Stamp: w.desired.stamp, Backend: config.NFTables}, found.Code
	connections := "connections that began before the repair continue unchanged until they end"
	if lost != nil {
		connections = "not all connections that began before the repair survive: " + lost.Error()
	}
	return finding(report.Captured, connections+"; found: "+found.Reason)
}

// restore repairs an uncaptured or drifted pod, or marks it for eviction, if the pod still runs and the
// policy permits that. It returns the finding after that.
func (e *examiner) restore(ctx context.Context, netns Namespace, w *watched, found report.Finding) report.Finding {
	runs, fault := e.runs(ctx, w)
	switch {
	case fault == nil && !runs: // a DEL may have removed the rules
		w.seen = 0 // the next examination compares everything, because the pod may only be between two containers
		return w.lastFinding()
	case e.settings.Policy == ReportOnly:
	case fault != nil:
		found.Reason += "; not repaired or evicted, because it may have ended: " + fault.Error()
	case e.settings.Policy == InPlace && w.desired.intent == nil: // no rules for the pod are known
	case e.settings.Policy == InPlace:
		return e.repair(ctx, netns, w, found)
	case !w.desired.hasController:
		found.Reason += "; it has no controller that would replace it, so it is not evicted"
	default:
		w.evict = true
	}
	return found
}

// renewRefused deletes stale conntrack entries of a pod whose rules have refused packets since
// renewRefused last succeeded. An entry that is older than the rules, or of an interface that the rules
// exclude, can make the rules refuse a later connection with the same addresses and ports, which they
// would otherwise capture. Without the entry, the rules decide anew about the next attempt. With the
// policy report, renewRefused deletes nothing.
func (e *examiner) renewRefused(ctx context.Context, netns Namespace, w *watched, o kernel.Observation) {
	if o.Generation == 0 { // the examination observed nothing
		return
	}
	err, refused := o.CountersFault, o.Counters.Refused()
	if err == nil && refused > w.refused && e.settings.Policy != ReportOnly {
		err = netns.DeleteStale(ctx)
	}
	if err == nil {
		w.refused = refused
	}
	e.once.warn("renewing the refused connections of a pod failed; retrying", err)
}

const (
	// runsTimeout limits the request whether a pod still runs, because ADD and DEL of the pod wait
	// meanwhile.
	runsTimeout = 2 * time.Second

	// runsPause limits the pause after such a request has failed slowly. In the pause, the guard sends no
	// further one, and neither repairs, updates nor evicts pods. Without the pause, a hanging runtime would
	// delay the examinations of a whole node.
	runsPause = 5 * time.Second
)

// runs asks the runtime whether a pod still runs. It returns an error without a request while the runtime
// does not list the sandboxes, and in the pause after a request that failed slowly.
//
// The kubelet stops a sandbox after all containers of the pod have exited, and CRI-O still reports the
// sandbox as ready while DEL runs. So a pod with a known baseline counts as ended once all its containers
// have exited. A pod without a baseline was never seen captured, and counts as running until its sandbox
// ends.
func (e *examiner) runs(ctx context.Context, w *watched) (bool, error) {
	if fault := cmp.Or(e.asker.lister.fault, e.breaker.refusal()); fault != nil {
		return false, fault
	}
	ctx, cancel := context.WithTimeout(ctx, runsTimeout)
	defer cancel()
	began := time.Now()
	runs, err := e.runtime.Runs(ctx, w.sandbox)
	if err == nil && runs && w.baseline.isKnown() {
		var exited bool
		exited, err = e.runtime.HaveExited(ctx, w.sandbox)
		runs = err == nil && !exited
	}
	if err != nil && time.Since(began) > runsTimeout/2 {
		e.breaker.trip(min(runsPause, e.settings.Round), fmt.Errorf("the container runtime does not answer: %w", err))
	}
	return runs, err
}
