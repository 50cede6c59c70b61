// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"cmp"
	"slices"
	"time"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/report"
)

// watched is what the guard knows about one running pod of the mesh, such as its last finding.
type watched struct {
	sandbox  cri.Sandbox     // has labels and annotations only during an examination
	mesh     config.MeshName // empty if no mesh had marked the pod at its creation
	desired  desired
	finding  report.Finding
	repaired report.Code // state before the last examination repaired or updated the pod; empty if it did not
	listed   time.Time   // when the pod was first listed
	next     time.Time   // when the next examination is due; zero before the first one
	baseline baseline
	unsaved  bool // the store lacks the baseline
	later    bool // the pod was injected after its sandbox was created
	repairs  streak
	updates  streak
	failure  string // error of the last update; empty if it succeeded, or there was none
	failed   bool   // this examination's update failed, with another error than the previous one
	evict    bool   // this examination found that the agent should evict the pod
	turn     bool   // the next examination may update the rules
	refused  uint64 // packets that the rules had refused when renewRefused last succeeded
	reading  reading
	exact    bool // the rules are known to be exactly the desired rules, in nftables
	older    bool // the pod ran already when the guard first listed the sandboxes

	seen            uint32 // generation at the last full comparison
	roundsUnchanged int    // number of examinations since the last full comparison, which counts as the first
}

// lastFinding returns the last finding or, before the first one, that the pod has ended.
func (w *watched) lastFinding() report.Finding {
	return cmp.Or(w.finding, finding(report.Unknown, "the pod has ended"))
}

// fullCheckEvery is the number of examinations after which the guard compares everything, even if the
// generation of nf_tables is unchanged. Routes, addresses and the tables of iptables-legacy can change
// without a new generation.
const fullCheckEvery = 10

// due returns the pods that should be examined now. New pods come first, then those that have waited
// longest, and then those that are only due for an update.
func (g *Guard) due(now time.Time) (due []*watched) {
	g.giveTurns(now)
	for _, w := range g.watched {
		if w.turn || !now.Before(w.next) {
			due = append(due, w)
		}
	}
	slices.SortFunc(due, func(a, b *watched) int {
		return cmp.Or(a.next.Compare(b.next), cmp.Compare(a.sandbox.ID, b.sandbox.ID))
	})
	return due
}

// sync adds the running pods that are in the mesh, or were injected later, to the watched pods, and
// removes all others from them.
func (g *Guard) sync(running map[string]cri.Sandbox) {
	older := !g.synced
	g.synced = true
	for id, sandbox := range running {
		later := g.asker.injectedLater(sandbox)
		if g.watched[id] == nil && (g.asker.isMeshed(sandbox) || later) {
			g.watched[id] = &watched{
				sandbox:  withoutMetadata(sandbox),
				mesh:     g.asker.meshOf(sandbox),
				listed:   time.Now(),
				baseline: g.store.load(id),
				later:    later,
				older:    older,
			}
		}
	}
	for id := range g.watched {
		if !g.asker.isMeshed(running[id]) && !g.asker.injectedLater(running[id]) {
			delete(g.watched, id)
			g.pruned = false
		}
	}
	if !g.pruned {
		err := g.store.prune(running)
		g.once.warn("deleting the baselines of pods that have ended failed", err)
		g.pruned = err == nil
	}
}

func byID(sandboxes []cri.Sandbox) map[string]cri.Sandbox {
	byID := make(map[string]cri.Sandbox, len(sandboxes))
	for _, sandbox := range sandboxes {
		byID[sandbox.ID] = sandbox
	}
	return byID
}
