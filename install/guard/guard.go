// SPDX-License-Identifier: Apache-2.0

// Package guard reconciles the pods of the mesh that run on a node: it compares
// their rules with the desired ones. It also covers pods that started before the
// plugin was installed, and rules that were changed after ADD.
package guard

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/metrics"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

// Policy is what the guard does with a pod that lacks the desired rules.
type Policy string

const (
	InPlace    Policy = "inPlace" // applies the rules; connections that began without them live on
	ReportOnly Policy = "report"  // changes nothing
	Evict      Policy = "evict"   // asks the agent to evict the pod, if a controller would replace it
)

// Policies returns all policies.
func Policies() []Policy { return []Policy{InPlace, ReportOnly, Evict} }

// Settings are the settings of a guard.
type Settings struct {
	Conf        config.NetConf // of the plugin
	Policy      Policy
	Round       time.Duration // between two examinations of a pod
	Refresh     time.Duration // between two reads of a pod from the API server, to notice edited annotations
	Socket      string        // of the agent, which receives records; empty for none
	BaselineDir string        // directory of the baselines, which outlive the guard; empty for none
}

const (
	pollInterval           = time.Second           // between two listings of the sandboxes
	pollIntervalWithEvents = 5 * time.Second       // the same, while the runtime sends events
	roundBudget            = time.Second           // of examinations, before the sandboxes are listed again
	settleDelay            = 50 * time.Millisecond // after an event: sandboxes often start together
	retryInterval          = 5 * time.Second       // after an examination that left the pod unrepaired or unknown
)

// Guard watches one node. It is used by one goroutine.
type Guard struct {
	settings   Settings
	runtime    Runtime
	pods       Pods
	log        *slog.Logger
	metrics    *podMetrics
	references podnet.References
	limits     repairLimits
	store      store
	outbox     outbox
	watched    map[string]*watched // by the sandbox's id
	pruned     bool                // the store has no baselines of sandboxes that have ended

	runtimeError, storeError string // the last one that was logged
}

// watched is a pod of the mesh, and its last finding.
type watched struct {
	sandbox  cri.Sandbox // with labels and annotations only during an examination
	desired  desired
	finding  Finding
	next     time.Time // of its examination
	baseline baseline
	repairs  streak

	lastGood        fingerprint // zero if the last full comparison found a fault
	roundsUnchanged int         // since that comparison
}

// fingerprint is what a pod's state depends on, except for routes, addresses and
// the tables of iptables-legacy. Every tenth round compares those, too.
type fingerprint struct {
	generation uint32
	stamp      string
	changed    bool
}

const fullCheckEvery = 10 // rounds

// New returns a Guard that registers its metrics with registry.
func New(settings Settings, runtime Runtime, pods Pods, log *slog.Logger, registry prometheus.Registerer) *Guard {
	return &Guard{
		settings: settings, runtime: runtime, pods: pods, log: log, metrics: newPodMetrics(metrics.NewFactory(registry)),
		limits: newRepairLimits(), store: store{dir: settings.BaselineDir}, outbox: outbox{socket: settings.Socket},
		watched: map[string]*watched{},
	}
}

// Run guards until ctx ends.
func (g *Guard) Run(ctx context.Context) {
	stream := newEventStream()
	var listener sync.WaitGroup
	listener.Go(func() { stream.listen(ctx, g.runtime) })
	defer listener.Wait()
	for ctx.Err() == nil {
		complete := g.Round(ctx)
		pause := pollInterval
		switch {
		case !complete:
			pause = 0
		case stream.open.Load():
			pause = max(pollInterval, min(pollIntervalWithEvents, g.settings.Round))
		}
		select {
		case <-ctx.Done():
		case <-stream.started:
			sleep(ctx, settleDelay)
		case <-time.After(pause):
		}
	}
}

// Round examines every pod that is new or due, within the round's budget. It
// reports whether that was enough; if not, the pods that have waited longest come
// first in the next round.
func (g *Guard) Round(ctx context.Context) (complete bool) {
	sandboxes, err := g.runtime.Sandboxes(ctx)
	g.warnOnce(&g.runtimeError, "listing the runtime's sandboxes failed, at least for some", err)
	running := g.sync(sandboxes)
	if err == nil {
		g.runtimeError = ""
		if !g.pruned {
			g.warnOnce(&g.storeError, storeFailed, g.store.prune(running))
			g.pruned = true
		}
	}
	slices.SortStableFunc(sandboxes, func(a, b cri.Sandbox) int { return g.due(a).Compare(g.due(b)) })
	complete = true
	began := time.Now()
	for _, sandbox := range sandboxes {
		w := g.watched[sandbox.ID]
		if w == nil || time.Now().Before(w.next) || ctx.Err() != nil {
			continue
		}
		if time.Since(began) > roundBudget {
			complete = false
			break
		}
		before, baseline := w.finding, w.baseline
		w.sandbox = sandbox
		w.finding = g.examine(ctx, w)
		w.sandbox = withoutMetadata(sandbox)
		if w.baseline != baseline {
			g.warnOnce(&g.storeError, storeFailed, g.store.save(sandbox.ID, w.baseline))
		}
		pause := g.settings.Round
		if w.finding.State == Unknown || w.isMissing() {
			pause = min(retryInterval, pause)
		}
		w.next = time.Now().Add(pause)
		g.report(w, before)
	}
	g.metrics.count(g.watched)
	g.outbox.send()
	return complete
}

const storeFailed = "storing the baselines of pods failed; after a restart they are unknown"

// warnOnce logs an error, unless it is the last one that was logged.
func (g *Guard) warnOnce(last *string, message string, err error) {
	if err != nil && err.Error() != *last {
		g.log.Warn(message, "error", err)
		*last = err.Error()
	}
}

// due returns when the guard examines a pod next.
func (g *Guard) due(sandbox cri.Sandbox) time.Time {
	if w := g.watched[sandbox.ID]; w != nil {
		return w.next
	}
	return time.Time{}
}

// sync adds new pods of the mesh to those watched, removes those that have ended,
// and returns the ids of all sandboxes that run.
func (g *Guard) sync(sandboxes []cri.Sandbox) (running map[string]bool) {
	running = map[string]bool{}
	for _, sandbox := range sandboxes {
		running[sandbox.ID] = true
		if g.watched[sandbox.ID] == nil && isMeshed(sandbox) {
			g.watched[sandbox.ID] = &watched{sandbox: withoutMetadata(sandbox), baseline: g.store.load(sandbox.ID)}
		}
	}
	for id := range g.watched {
		if !running[id] {
			delete(g.watched, id)
			g.pruned = false
		}
	}
	return running
}

// report logs a new finding and sends it to the agent. A request for an eviction
// is repeated at each examination.
func (g *Guard) report(w *watched, before Finding) {
	if g.settings.Policy == Evict && w.desired.hasController && w.isMissing() {
		g.outbox.requestEviction(w)
	}
	if w.finding.State == before.State && w.finding.Repaired == "" {
		return
	}
	g.outbox.add(w)
	log := g.log.With("pod", w.sandbox.Namespace+"/"+w.sandbox.Name, "state", w.finding.State)
	switch {
	case w.finding.Repaired != "":
		log.Warn("repaired the pod's capture rules", "found", w.finding.Repaired, "reason", w.finding.Reason)
	case w.finding.State == Captured:
		log.Debug("the pod is captured", "reason", w.finding.Reason)
	case w.finding.State == Exempt:
		log.Info("the pod is in the mesh and exempt from capture", "cause", w.desired.exemption.Cause, "reason", w.finding.Reason)
	default:
		log.Warn("the pod is not in the desired state", "reason", w.finding.Reason)
	}
}
