// SPDX-License-Identifier: Apache-2.0

// Package guard looks after the pods that run on a node: whether each one of
// the mesh is captured, as it was to be when it was made. What a plugin can't
// know, because it was not there yet or is there no more, shows here.
package guard

import (
	"context"
	"fmt"
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

// Policy is what becomes of a pod that is not captured as it should be.
type Policy string

const (
	// InPlace applies the rules; connections that began without them live on.
	InPlace Policy = "inPlace"
	// ReportOnly changes nothing.
	ReportOnly Policy = "report"
	// Evict has the agent evict the pod, if somebody makes another.
	Evict Policy = "evict"
)

// Policies are all of them.
func Policies() []Policy { return []Policy{InPlace, ReportOnly, Evict} }

// Settings are how a guard is to work.
type Settings struct {
	Conf    config.NetConf // of the plugin
	Policy  Policy
	Round   time.Duration // from one look at a pod to the next
	Refresh time.Duration // from one read of a pod to the next, to notice changed annotations
	Socket  string        // at which the agent hears what was found; empty for none
	Memory  string        // directory of what ADDs and repairs left, over a restart; empty for none
}

// Pace of the guard.
const (
	tick   = time.Second           // between two looks for new sandboxes,
	calm   = 5 * time.Second       // where the runtime tells of them, too
	slice  = time.Second           // of looks, before new sandboxes are looked for again
	settle = 50 * time.Millisecond // from a sandbox to the look at it: others come with it
	soon   = 5 * time.Second       // after a look that did not settle it
)

// Guard watches one node. It is used by one goroutine.
type Guard struct {
	settings   Settings
	runtime    Runtime
	pods       Pods
	log        *slog.Logger
	metrics    *podMetrics
	references podnet.References
	pace       pace
	memory     memory
	outbox     outbox
	watched    map[string]*watched // by the sandbox's id
	complaint  string              // about the runtime, said once
	forgetful  string              // why the memory fails, said once
	tidy       bool                // the memory is of no pods that have gone
}

// watched is a pod of the mesh, and what was last found.
type watched struct {
	sandbox cri.Sandbox // with labels and annotations only while it is looked at
	wish    wish
	finding Finding
	next    time.Time

	baseline baseline // that ADD or a repair left
	repairs  repairs  // that followed one another

	sound  look // at which it was last found in order; zero if it was not
	rounds int  // since it was last looked at thoroughly
}

// look is all that a pod's state depends on, but for routes and addresses and
// the tables of iptables-legacy: those are looked at in every tenth round.
type look struct {
	generation uint32
	stamp      string
	changed    bool
}

const thorough = 10

// New makes a guard whose metrics go to registry.
func New(settings Settings, runtime Runtime, pods Pods, log *slog.Logger, registry prometheus.Registerer) *Guard {
	return &Guard{
		settings: settings, runtime: runtime, pods: pods, log: log, metrics: newPodMetrics(metrics.NewFactory(registry)),
		pace: newPace(), memory: memory{dir: settings.Memory}, watched: map[string]*watched{},
		outbox: outbox{socket: settings.Socket},
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
		pause := tick
		switch {
		case !complete:
			pause = 0
		case stream.open.Load():
			pause = max(tick, min(calm, g.settings.Round))
		}
		select {
		case <-ctx.Done():
		case <-stream.started:
			sleep(ctx, settle)
		case <-time.After(pause):
		}
	}
}

// Round examines every pod that is new or due, for one slice of time at most. It
// reports whether that was enough; if not, the pods that have waited longest come
// first in the next round.
func (g *Guard) Round(ctx context.Context) (complete bool) {
	sandboxes, err := g.runtime.Sandboxes(ctx)
	if said := fmt.Sprint(err); err != nil && said != g.complaint {
		g.log.Warn("the runtime does not tell all of its pods", "error", err)
		g.complaint = said
	} else if err == nil {
		g.complaint = ""
	}
	there := g.follow(sandboxes)
	if err == nil && !g.tidy {
		g.remember(g.memory.keep(there))
		g.tidy = true
	}
	complete = true
	slices.SortStableFunc(sandboxes, func(a, b cri.Sandbox) int { return g.due(a).Compare(g.due(b)) })
	for began := time.Now(); len(sandboxes) > 0; sandboxes = sandboxes[1:] {
		w := g.watched[sandboxes[0].ID]
		if w == nil || time.Now().Before(w.next) || ctx.Err() != nil {
			continue
		}
		if time.Since(began) > slice {
			complete = false
			break
		}
		before, left := w.finding, w.baseline
		w.sandbox = sandboxes[0]
		w.finding = g.examine(ctx, w)
		w.sandbox = withoutMetadata(w.sandbox)
		if w.baseline != left {
			g.remember(g.memory.save(w.sandbox.ID, w.baseline))
		}
		w.next = time.Now().Add(g.pause(w))
		g.tell(w, before)
	}
	g.metrics.count(g.watched)
	g.outbox.send()
	return complete
}

// remember logs why baselines are not kept, once for each reason.
func (g *Guard) remember(err error) {
	if said := fmt.Sprint(err); err != nil && said != g.forgetful {
		g.log.Warn("what pods hold is not kept over a restart", "error", err)
		g.forgetful = said
	}
}

// due returns when the guard examines a pod next.
func (g *Guard) due(sandbox cri.Sandbox) time.Time {
	if w := g.watched[sandbox.ID]; w != nil {
		return w.next
	}
	return time.Time{}
}

// follow begins to watch new pods of the mesh, and forgets those that have gone.
// It returns the ids of those that are there.
func (g *Guard) follow(sandboxes []cri.Sandbox) (there map[string]bool) {
	there = map[string]bool{}
	for _, sandbox := range sandboxes {
		there[sandbox.ID] = true
		if g.watched[sandbox.ID] == nil && isMeshed(sandbox) {
			g.watched[sandbox.ID] = &watched{sandbox: withoutMetadata(sandbox), baseline: g.memory.load(sandbox.ID)}
		}
	}
	for id := range g.watched {
		if !there[id] {
			delete(g.watched, id)
			g.tidy = false
		}
	}
	return there
}

func (g *Guard) pause(w *watched) time.Duration {
	if w.finding.State == Unknown || w.isMissing() {
		return min(soon, g.settings.Round)
	}
	return g.settings.Round
}

// tell logs what is new, and has the agent know it.
func (g *Guard) tell(w *watched, before Finding) {
	if g.settings.Policy == Evict && w.wish.owned && w.isMissing() {
		g.outbox.requestEviction(w)
	}
	if w.finding.State == before.State && w.finding.Repaired == "" {
		return
	}
	g.outbox.add(w)
	log := g.log.With("pod", w.sandbox.Namespace+"/"+w.sandbox.Name, "state", w.finding.State)
	switch {
	case w.finding.Repaired != "":
		log.Warn("the pod was not captured, and is now", "found", w.finding.Repaired, "reason", w.finding.Reason)
	case w.finding.State == Captured:
		log.Debug("looked at the pod", "reason", w.finding.Reason)
	case w.finding.State == Exempt:
		log.Info("the pod is in the mesh and exempt from capture", "cause", w.wish.exemption.Cause, "reason", w.finding.Reason)
	default:
		log.Warn("the pod is not captured as it should be", "reason", w.finding.Reason)
	}
}
