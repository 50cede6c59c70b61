// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/kernel"
	"github.com/capture-cni/capture-cni/install/terms"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

// repair repairs a pod, unless a limit forbids it.
func (e *examiner) repair(ctx context.Context, netns *podnet.Namespace, w *watched, found Finding) Finding {
	if refusal := e.limits.refusal(&w.repairs, time.Now()); refusal != "" {
		found.Reason += "; " + refusal
		return found
	}
	if w.repairs.add(time.Now()) {
		e.metrics.repeated.Inc()
		found.Reason += fmt.Sprintf("; attempt %d in a row to repair it", w.repairs.count)
	}
	connections, err := e.replace(ctx, netns, w)
	if err != nil {
		e.metrics.repairs.WithLabelValues(failed).Inc()
		found.Reason += "; repairing it: " + err.Error()
		return found
	}
	e.metrics.repairs.WithLabelValues(done).Inc()
	return Finding{terms.Captured, connections + "; found: " + found.Reason, found.State}
}

// renewRefused deletes stale conntrack entries of a pod whose rules have refused packets
// since the last examination: one from before the rules, or of an interface that they
// exclude, refuses an innocent connection of the same ports. Its next attempt is decided
// anew.
func (e *examiner) renewRefused(ctx context.Context, netns *podnet.Namespace, w *watched) {
	refused, err := podnet.Read(netns, func() (uint64, error) { return kernel.Refused(ctx) })
	if err == nil && refused > w.refused && e.settings.Policy != ReportOnly {
		err = kernel.DeleteStale(ctx, netns)
	}
	if err == nil {
		w.refused = refused
	}
	e.once.warn("renewing the refused connections of a pod failed; retrying", err)
}

// replace replaces the rules, and returns what that means for the connections that
// have begun. The pod may have ended meanwhile, and its namespace's path may lead
// to another pod's.
func (e *examiner) replace(ctx context.Context, netns *podnet.Namespace, w *watched) (connections string, err error) {
	same, err := netns.Is(w.sandbox.NetNS)
	if err != nil {
		return "", err
	}
	if !same {
		return "", errors.New("the pod has ended")
	}
	rules := w.desired.rules()
	lost, err := kernel.Replace(ctx, netns, rules)
	if err != nil {
		return "", fmt.Errorf("applying its rules: %w", err)
	}
	w.baseline = baseline{Stamp: rules.Stamp(), Backend: config.NFTables}
	if lost != nil {
		return "not all connections that began before the repair survive: " + lost.Error(), nil
	}
	return "connections that began before the repair continue unchanged until they end", nil
}
