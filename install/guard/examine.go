// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

// examineTimeout ends a look at one pod; an ADD may hold its lock.
const examineTimeout = 4 * time.Second

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
	if isolatedBy(w.sandbox.Runtime) != "" {
		return w.judgeIsolated(pod)
	}
	netns, err := podnet.TryOpen(w.sandbox.NetNS)
	if errors.Is(err, podnet.ErrBusy) && w.finding.State != "" {
		last := w.finding // an ADD or a DEL is at work; the next round sees what came of it
		last.Repaired = ""
		return last
	}
	if err != nil {
		return Finding{State: Unknown, Reason: err.Error()}
	}
	defer netns.Close()
	if pod != nil {
		if err := w.wish.decide(pod, w.sandbox, g.settings.Conf.Capture, netns.Addresses); err != nil {
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
	if refusal := g.pace.refusal(&w.repairs, time.Now()); refusal != "" {
		found.Reason += "; " + refusal
		return found
	}
	if w.repairs.attempted(time.Now()) {
		g.metrics.repeated.Inc()
		found.Reason += fmt.Sprintf("; attempt %d in a row to repair it", w.repairs.count)
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

// judge tells how the pod stands. As long as nothing was committed to nf_tables
// in its namespace, that is as before.
func (g *Guard) judge(ctx context.Context, netns *podnet.Namespace, w *watched) Finding {
	generation, err := netns.Generation(ctx)
	if err != nil {
		return Finding{State: Unknown, Reason: err.Error()}
	}
	now := look{generation, w.wish.stamp, w.wish.changed}
	if w.sound == now && w.rounds%thorough != 0 {
		w.rounds++
		return w.finding
	}
	found := g.compare(ctx, netns, w)
	found = obstructed(ctx, netns, w.baseline.Backend, found)
	w.sound, w.rounds = look{}, 1
	switch found.State {
	case Captured, Changed, Outdated, Obstructed:
		w.sound = now
	}
	return found
}

// compare compares what the namespace holds with what it is to hold, and with
// what ADD or a repair left there: a name that another process of the pod can
// give to its own chains or rules does not decide.
func (g *Guard) compare(ctx context.Context, netns *podnet.Namespace, w *watched) Finding {
	state, err := netns.State(ctx)
	if err != nil {
		return unreadable(err)
	}
	w.baseline.confirm(g.settings.Socket, w.sandbox)
	wish, left := w.wish, w.baseline
	rules, own := wish.rules().StampedAs(state.Stamp)
	switch {
	case state.Backend == "" && state.Foreign != "" && !left.isKnown():
		return Finding{State: Foreign, Reason: state.Foreign}
	case state.Backend == "":
		return Finding{State: Uncaptured, Reason: "no rules of the plugin are in its network namespace"}
	case left.isKnown() && state.Backend != left.Backend:
		return Finding{State: Drifted, Reason: fmt.Sprintf("its rules are in backend %s, and it was captured by %s", state.Backend, left.Backend)}
	case capture.IsStamp(state.Stamp) && !own:
		return w.baseline.judgeOutdated(ctx, netns, state)
	}
	differences, err := netns.Compare(ctx, &g.references, rules, state.Backend)
	switch {
	case err != nil:
		return unreadable(err)
	case len(differences) > 0:
		return Finding{State: Drifted, Reason: strings.Join(differences, "; ")}
	}
	if !left.holds(state) {
		if err := w.baseline.adopt(ctx, netns, state); err != nil {
			return unreadable(err)
		}
	}
	if wish.changed {
		return Finding{State: Changed, Reason: "its annotations were edited after it was made; a restart applies them"}
	}
	return Finding{State: Captured}
}

// unreadable is the finding for rules that could not be read: drifted where they
// exceed a limit or keep changing, which ADD's rules never do, else unknown.
func unreadable(err error) Finding {
	_, tooLarge := errors.AsType[podnet.TooLarge](err)
	if tooLarge || errors.Is(err, podnet.ErrChanging) {
		return Finding{State: Drifted, Reason: err.Error()}
	}
	return Finding{State: Unknown, Reason: err.Error()}
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
	rules := w.wish.rules()
	lost, err := netns.Replace(ctx, rules)
	if err != nil {
		return "", fmt.Errorf("applying its rules: %w", err)
	}
	w.baseline = baseline{Stamp: rules.Stamp(), Backend: config.NFTables}
	if lost != nil {
		return "not all connections that began before live on: " + lost.Error(), nil
	}
	return "connections that began before stay as they are until they end", nil
}
