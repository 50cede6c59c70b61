// SPDX-License-Identifier: Apache-2.0

// Package guard reconciles the running pods of the mesh on a node. It compares their rules with the
// desired rules, and repairs or reports pods that are uncaptured or whose rules were changed, or asks
// the agent to evict them. It can also update rules of another version or configuration.
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

// Policy says how the guard treats uncaptured and drifted pods.
type Policy string

const (
	InPlace    Policy = "inPlace" // writes the rules, and tries to keep open connections, except those of a fenced pod
	ReportOnly Policy = "report"  // only reports the pod; Settings.Update decides about outdated pods
	Evict      Policy = "evict"   // asks the agent to evict the pod, if a controller would replace it
)

// Policies returns all policies.
func Policies() []Policy { return []Policy{InPlace, ReportOnly, Evict} }

// Settings contains the settings of a guard.
type Settings struct {
	Conf        config.NetConf // the plugin's configuration
	Policy      Policy
	Update      Update
	Round       time.Duration // between two examinations of a pod; see pauseAfter
	Socket      string        // the agent's socket for records
	HistoryDir  string        // directory in which the agent writes records of the last ADDs
	BaselineDir string        // directory of the baselines, which survive the guard's restart
}

const (
	pollInterval           = time.Second           // longest pause after a round that is complete
	pollIntervalWithEvents = 5 * time.Second       // the same while the runtime sends events, unless Settings.Round is shorter
	roundBudget            = time.Second           // time for examinations, before the next round lists the sandboxes again
	settleDelay            = 50 * time.Millisecond // after an event, because sandboxes often start together
	retryInterval          = 5 * time.Second       // longest pause after an examination that left the pod unrepaired or unknown
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
	pruned   bool                // the store was pruned since a pod was last removed from watched
	unsaved  bool                // the log says that the store lacks baselines
	progress progress
	summary  summary
}

// New returns a Guard, and registers its metrics.
func New(settings Settings, runtime Runtime, pods Pods, log *slog.Logger, registry prometheus.Registerer) *Guard {
	return Node{open, new(kernel.References).Digest, record.Send}.New(settings, runtime, pods, log, registry)
}

// New returns a Guard that uses the Node, and registers its metrics.
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

// Round examines every pod that is new or due, until ctx ends or the round's time budget is used up.
// complete is false if the budget was too short. The next round then begins with new pods and those
// that have waited longest. If the runtime can't list the sandboxes, Round examines the known pods.
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

// revisit examines a pod, stores its baseline if that has changed or is not stored yet, and reports the
// result.
func (g *Guard) revisit(ctx context.Context, w *watched) {
	before, baseline := w.finding, w.baseline
	w.repaired, w.failed, w.evict = "", false, false
	w.finding, _ = g.examiner.examine(ctx, w, nil)
	w.turn = false
	w.baseline.Reported = isReported(w.finding.Code, baseline.Reported, false)
	if w.baseline != baseline || w.unsaved {
		g.save(w)
	}
	w.next = time.Now().Add(g.pauseAfter(w))
	g.report(w, before)
}

// pauseAfter returns the time until the next examination of a pod: at most retryInterval if the pod's
// state is unknown, or if the pod lacks its rules and a repair or an eviction would help, and otherwise
// Settings.Round. Neither would help a pod whose runtime has a network stack of its own.
func (g *Guard) pauseAfter(w *watched) time.Duration {
	if w.finding.Code == report.Unknown || lacksRules(w.finding.Code) && isolatingRuntime(w.sandbox.Runtime) == "" {
		return min(retryInterval, g.settings.Round)
	}
	return g.settings.Round
}

// noteReported stores in the baselines which outdated pods were reported to the agent. It does so in
// the round of the report, because the guard may be replaced before the next round. A record that the
// full queue dropped counts as sent, because no later examination would queue it again.
func (g *Guard) noteReported() {
	for _, w := range g.watched {
		sent := len(g.outbox.queue) == 0 && !g.awaitsUpdate(w)
		if now := isReported(w.finding.Code, w.baseline.Reported, sent); now != w.baseline.Reported {
			w.baseline.Reported = now
			g.save(w)
		}
	}
}

// isReported reports whether the agent was sent a record that the pod is outdated. found is the pod's
// state, reported the earlier result, and sent whether a record was sent since.
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

// report logs a pod's new state, a repair, an update, and a new error of an update. It also queues a
// record, except while the agent knows that the pod is outdated, or the guard will first try an update.
// It requests the pod's eviction after every examination that marks the pod.
func (g *Guard) report(w *watched, before report.Finding) {
	if w.evict {
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
		log.Warn("the pod's state needs attention", "reason", w.finding.Reason)
	}
}
