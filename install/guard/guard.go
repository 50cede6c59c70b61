// SPDX-License-Identifier: Apache-2.0

// Package guard reconciles the running pods of the mesh on a node. It compares their rules with the
// desired rules, and repairs, reports or evicts pods that started before the plugin was installed, or
// whose rules were changed after ADD.
package guard

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/kernel"
	"github.com/capture-cni/capture-cni/install/metrics"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/install/trace"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// Policy says how the guard treats a pod that lacks the desired rules.
type Policy string

const (
	InPlace    Policy = "inPlace" // applies the rules, and keeps open connections, except those of a fenced pod
	ReportOnly Policy = "report"  // only reports the pod; Update is a separate setting
	Evict      Policy = "evict"   // asks the agent to evict the pod, if a controller would replace it
)

// Policies returns all policies.
func Policies() []Policy { return []Policy{InPlace, ReportOnly, Evict} }

// Settings contains the settings of a guard.
type Settings struct {
	Conf        config.NetConf // the plugin's configuration
	Policy      Policy
	Update      Update
	Round       time.Duration // between two examinations of a pod
	Socket      string        // the agent's socket for records
	HistoryDir  string        // directory in which the agent writes records of the last ADDs
	BaselineDir string        // directory of the baselines, which survive the guard's restart
}

const (
	pollInterval           = time.Second           // between two listings of the sandboxes
	pollIntervalWithEvents = 5 * time.Second       // the same, if the runtime sends events
	roundBudget            = time.Second           // time for examinations, before the sandboxes are listed again
	settleDelay            = 50 * time.Millisecond // after an event, because sandboxes often start together
	retryInterval          = 5 * time.Second       // after an examination that left the pod unrepaired or unknown
)

// Guard examines the pods of one node. Only one goroutine may use it, except that any may call Stuck.
type Guard struct {
	settings Settings
	runtime  Runtime
	lister   *lister
	asker    *asker
	examiner *examiner
	log      *slog.Logger
	once     *onceLog
	metrics  *podMetrics
	store    store
	outbox   outbox
	updates  *rate.Limiter
	watched  map[string]*watched // by the sandbox's id
	synced   bool                // the sandboxes were listed once
	pruned   bool                // the store has no baselines of sandboxes that have ended
	unsaved  bool                // the log says that the store lacks baselines
	progress progress
	summary  summary
}

// New returns a Guard, and registers its metrics.
func New(settings Settings, runtime Runtime, pods Pods, log *slog.Logger, registry prometheus.Registerer) *Guard {
	return Node{open, new(kernel.References).Digest, record.Send}.New(settings, runtime, pods, log, registry)
}

// New returns a Guard on a simulated node.
func (n Node) New(settings Settings, runtime Runtime, pods Pods, log *slog.Logger, registry prometheus.Registerer) *Guard {
	once, metrics := newOnceLog(log), newPodMetrics(metrics.NewFactory(registry))
	metrics.begin(settings.Conf.Capture.Meshes)
	sandboxes := &lister{runtime: runtime, log: log}
	agent := &asker{pods: pods, lister: sandboxes, round: settings.Round, meshes: settings.Conf.Capture.Meshes, once: once}
	g := &Guard{
		settings: settings, runtime: runtime, lister: sandboxes, asker: agent, log: log, once: once, metrics: metrics,
		examiner: &examiner{
			settings: settings, asker: agent, runtime: runtime,
			node: n, meters: map[string][]trace.Meter{}, limits: newRepairLimits(), metrics: metrics, once: once,
		},
		store: store{dir: settings.BaselineDir}, outbox: outbox{deliver: func(r record.Record) bool { return n.Send(settings.Socket, r) }},
		updates: newUpdateLimit(), watched: map[string]*watched{},
	}
	g.progress.update(nil, time.Now())
	return g
}

// Run examines the node's pods in rounds until ctx ends.
func (g *Guard) Run(ctx context.Context) {
	stream := newEventStream()
	var listener sync.WaitGroup
	listener.Go(func() { stream.listen(ctx, g.runtime) })
	defer listener.Wait()
	defer g.lister.wait()
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
		case <-g.lister.done():
		case <-time.After(pause):
		}
	}
}

// Round examines every pod that is new or due, until the round's time budget is used up, and reports
// whether it has examined all of them. If not, the next round begins with the pods that have waited
// longest. If the runtime can't list the sandboxes, Round examines the known pods.
func (g *Guard) Round(ctx context.Context) (complete bool) {
	running := byID(g.lister.next(ctx))
	if g.lister.fault == nil {
		g.sync(running)
	}
	complete = true
	began := time.Now()
	for _, w := range g.due(began) {
		if ctx.Err() != nil {
			break
		}
		if time.Since(began) > roundBudget {
			complete = false
			break
		}
		if sandbox, listed := running[w.sandbox.ID]; listed {
			w.sandbox = sandbox
		}
		g.revisit(ctx, w)
		w.sandbox = withoutMetadata(w.sandbox)
	}
	g.asker.askInjected(ctx)
	g.metrics.count(g.watched, g.asker.meshes)
	g.metrics.lastListing.Set(seconds(g.lister.last))
	g.metrics.lastRound.Set(seconds(g.progress.update(g.watched, time.Now())))
	g.outbox.send()
	g.noteReported()
	g.writeSummary(time.Now())
	return complete
}

// revisit examines a pod, stores its baseline if that has changed, and reports a new finding.
func (g *Guard) revisit(ctx context.Context, w *watched) {
	before, baseline := w.finding, w.baseline
	w.repaired, w.failed = "", false
	w.finding, _ = g.examiner.examine(ctx, w, nil)
	w.turn = false
	w.baseline.Reported = isReported(w.finding.Code, baseline.Reported, false)
	if w.baseline != baseline || w.unsaved {
		g.save(w)
	}
	w.next = time.Now().Add(g.pauseAfter(w))
	g.report(w, before)
}

// pauseAfter returns the time until the next examination of a pod. It is shorter than a round if the
// pod's state is unknown or the pod lacks the desired rules.
func (g *Guard) pauseAfter(w *watched) time.Duration {
	if w.finding.Code == report.Unknown || w.isMissing() {
		return min(retryInterval, g.settings.Round)
	}
	return g.settings.Round
}

// noteReported stores in the baselines which outdated pods were reported to the agent. It does so in
// the same round, because the guard may be replaced before the next one.
func (g *Guard) noteReported() {
	for _, w := range g.watched {
		sent := len(g.outbox.queue) == 0 && !g.awaitsUpdate(w)
		if now := isReported(w.finding.Code, w.baseline.Reported, sent); now != w.baseline.Reported {
			w.baseline.Reported = now
			g.save(w)
		}
	}
}

// isReported reports whether the agent has a record that the pod is outdated. found is the pod's state,
// reported the earlier result, and sent whether the agent has received all records since.
func isReported(found report.Code, reported, sent bool) bool {
	return found == report.Unknown && reported || found == report.Outdated && (reported || sent)
}

// save stores a pod's baseline. If that fails, the baseline stays in memory, and the next examination
// tries again.
func (g *Guard) save(w *watched) {
	err := g.store.save(w.sandbox.ID, w.baseline)
	w.unsaved = err != nil
	switch {
	case err != nil && !g.unsaved:
		g.log.Warn("storing the baseline of a pod failed; retrying; until it is stored, a restart of the guard loses it", "error", err)
		g.unsaved = true
	case g.unsaved && !slices.ContainsFunc(slices.Collect(maps.Values(g.watched)), func(w *watched) bool { return w.unsaved }):
		g.log.Info("all baselines of pods are stored again")
		g.unsaved = false
	}
}

// report logs a finding that is new, or whose repair or update has a new result, and queues a record
// for the agent. It requests an eviction after every examination for which the policy demands one.
func (g *Guard) report(w *watched, before report.Finding) {
	if g.settings.Policy == Evict && g.examiner.runtimeFault() == nil && w.desired.hasController && w.isMissing() {
		g.outbox.requestEviction(w)
	}
	if w.finding.Code == before.Code && w.repaired == "" && !w.failed {
		return
	}
	if !w.baseline.Reported && !g.awaitsUpdate(w) {
		g.outbox.add(w)
	}
	log := g.log.With("pod", w.sandbox.Namespace+"/"+w.sandbox.Name, "state", w.finding.Code)
	switch {
	case w.repaired == report.Outdated:
		log.Info("updated the pod's capture rules", "reason", w.finding.Reason)
	case w.repaired != "":
		log.Warn("repaired the pod's capture rules", "found", w.repaired, "reason", w.finding.Reason)
	case w.finding.Code == report.Captured:
		log.Debug("the pod is captured", "reason", w.finding.Reason)
	case w.finding.Code == report.Exempt:
		log.Info("the pod is in the mesh and exempt from capture", "cause", w.desired.exemption.Cause, "reason", w.finding.Reason)
	default:
		log.Warn("the pod is not in the desired state", "reason", w.finding.Reason)
	}
}
