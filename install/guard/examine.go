// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

// examineTimeout ends a look at one pod; an ADD may hold its lock.
const examineTimeout = 10 * time.Second

// examine looks at one pod and, where policy and rate allow it, puts it right.
// While it does, it holds the lock of the namespace, for which ADD and DEL
// wait: so the API server is asked before.
func (g *Guard) examine(ctx context.Context, w *watched) Finding {
	ctx, cancel := context.WithTimeout(ctx, examineTimeout)
	defer cancel()
	if slices.Contains(g.settings.Conf.ExcludeNamespaces, w.sandbox.Namespace) {
		w.wish.exemption = capture.ExcludedNamespace(w.sandbox.Namespace)
		return Finding{State: Exempt, Reason: w.wish.exemption.Message}
	}
	pod, err := w.wish.refresh(ctx, g.pods, w.sandbox, g.settings.Refresh)
	if err != nil {
		return Finding{State: Unknown, Reason: err.Error()}
	}
	if w.sandbox.Isolated != "" {
		return w.judgeIsolated(pod)
	}
	netns, err := podnet.TryOpen(w.sandbox.NetNS)
	if errors.Is(err, podnet.ErrBusy) && w.finding.State != "" {
		return w.finding // an ADD or a DEL is at work; the next round sees what came of it
	}
	if err != nil {
		return Finding{State: Unknown, Reason: err.Error()}
	}
	defer netns.Close()
	if pod != nil {
		if err := g.decide(netns, w, pod); err != nil {
			return Finding{State: Unknown, Reason: err.Error()}
		}
	}
	if w.wish.exemption.Cause != "" {
		return Finding{State: Exempt, Reason: w.wish.exemption.Message}
	}
	found := g.judge(ctx, netns, w)
	if !found.isMissing() {
		return found
	}
	if g.settings.Policy == Evict && !w.wish.owned {
		found.Reason += "; nobody would make it anew, so it is not evicted"
	}
	if g.settings.Policy != InPlace {
		return found
	}
	if !g.repairs.Allow() {
		found.Reason += "; too many repairs at once, it has to wait"
		return found
	}
	connections, err := g.repair(ctx, netns, w)
	if err != nil {
		g.metrics.repaired(failed)
		found.Reason += "; repairing it: " + err.Error()
		return found
	}
	g.metrics.repaired(done)
	return Finding{Captured, connections + "; found: " + found.Reason, found.State}
}

func (g *Guard) decide(netns *podnet.Namespace, w *watched, pod *corev1.Pod) error {
	addresses, err := netns.Addresses()
	if err != nil {
		return err
	}
	return w.wish.decide(pod, w.sandbox, g.settings.Conf.Capture, addresses)
}

// judge tells how the pod stands. As long as nothing was committed to nf_tables
// in its namespace, that is as before.
func (g *Guard) judge(ctx context.Context, netns *podnet.Namespace, w *watched) Finding {
	generation, err := netns.Generation()
	if err != nil {
		return Finding{State: Unknown, Reason: err.Error()}
	}
	now := look{generation, w.wish.stamp, w.wish.changed}
	if w.sound == now && w.rounds%thorough != 0 {
		w.rounds++
		return w.finding
	}
	found := g.compare(ctx, netns, w.wish)
	w.sound, w.rounds = look{}, 1
	if found.State == Captured || found.State == Changed {
		w.sound = now
	}
	return found
}

// compare compares what the namespace holds with what it is to hold.
func (g *Guard) compare(ctx context.Context, netns *podnet.Namespace, wish wish) Finding {
	state, err := netns.State()
	if err != nil {
		return Finding{State: Unknown, Reason: err.Error()}
	}
	switch {
	case state.Foreign != "":
		return Finding{State: Foreign, Reason: state.Foreign}
	case state.Backend == "":
		return Finding{State: Uncaptured, Reason: "nobody's rules are in its network namespace"}
	case capture.IsStamp(state.Stamp) && state.Stamp != wish.stamp:
		return Finding{State: Outdated, Reason: "its rules are those of another version or configuration: " + state.Stamp}
	}
	differences, err := netns.Compare(ctx, &g.references, wish.rules(), state.Backend)
	switch {
	case err != nil:
		return Finding{State: Unknown, Reason: err.Error()}
	case len(differences) > 0:
		return Finding{State: Drifted, Reason: strings.Join(differences, "; ")}
	case wish.changed:
		return Finding{State: Changed, Reason: "its annotations were edited after it was made; a restart applies them"}
	}
	return Finding{State: Captured}
}

// repair applies the rules for connections that begin from now on, and says what
// became of the others. The pod may have ended meanwhile, and its namespace's
// path lead to another's.
func (g *Guard) repair(ctx context.Context, netns *podnet.Namespace, w *watched) (connections string, err error) {
	runs, err := g.runtime.Runs(ctx, w.sandbox)
	if err != nil {
		return "", err
	}
	same, err := netns.Is(w.sandbox.NetNS)
	if err != nil {
		return "", err
	}
	if !runs || !same {
		return "", errors.New("the pod has ended")
	}
	lost, err := netns.Replace(ctx, w.wish.rules())
	if err != nil {
		return "", fmt.Errorf("applying its rules: %w", err)
	}
	if lost != nil {
		return "not all connections that began before live on: " + lost.Error(), nil
	}
	return "connections that began before stay as they are until they end", nil
}
