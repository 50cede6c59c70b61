// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/kernel"
	"github.com/capture-cni/capture-cni/install/terms"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

// examineTimeout bounds the examination of one pod, with its wait for an ADD.
const examineTimeout = 4 * time.Second

// examiner examines one pod at a time. What it knows of a pod is in the pod's watched.
type examiner struct {
	settings   Settings
	asker      *asker
	runtime    Runtime
	breaker    breaker // of the question whether a pod still runs
	references *kernel.References
	limits     repairLimits
	metrics    *podMetrics
	once       *onceLog
}

// examine compares one pod with its desired state and, where policy and limits
// allow it, repairs it. It asks the agent first: ADD and DEL wait while it holds the
// lock of the namespace.
func (e *examiner) examine(ctx context.Context, w *watched) Finding {
	ctx, cancel := context.WithTimeout(ctx, examineTimeout)
	defer cancel()
	if e.settings.Conf.ExcludesNamespace(w.sandbox.Namespace) {
		w.desired.exemption = capture.Exemption{Cause: capture.NamespaceExcluded, Message: fmt.Sprintf("namespace %s is in excludeNamespaces", w.sandbox.Namespace)}
		return Finding{State: terms.Exempt, Reason: w.desired.exemption.Message}
	}
	if w.later { // not repaired: no edit of a running pod decides on its capture
		return Finding{State: terms.InjectedLater, Reason: "it was not injected when its sandbox was made, and its annotations were edited since: replace the pod, and find out who edited it"}
	}
	if w.sandbox.NetworkError != nil {
		return unknown(w.sandbox.NetworkError)
	}
	answer, err := e.asker.ask(ctx, w)
	if err != nil {
		return unknown(err)
	}
	if isolatingRuntime(w.sandbox.Runtime) != "" {
		return w.checkIsolated(answer, e.settings.Conf.Capture.Meshes)
	}
	netns, err := kernel.TryOpen(w.sandbox.NetNS)
	if errors.Is(err, podnet.ErrBusy) && w.finding.State != "" { // an ADD or a DEL runs
		return w.lastFinding()
	}
	if err != nil {
		return unknown(err)
	}
	defer netns.Close()
	e.once.warn("continuing without a lock of network namespaces, which keeps ADD and guard apart", netns.LockFault)
	if answer != nil {
		w.baseline.confirmBy(e.settings.HistoryDir, w.sandbox)
		if err := w.desired.decide(answer, w.sandbox, e.settings.Conf.Capture, w.baseline.addressesOf(netns)); err != nil {
			return unknown(err)
		}
		w.mesh = cmp.Or(w.desired.mesh, w.mesh)
	}
	if w.desired.exemption.Cause != "" {
		return Finding{State: terms.Exempt, Reason: w.desired.exemption.Message}
	}
	found := e.check(ctx, netns, w)
	if !found.isMissing() {
		e.renewRefused(ctx, netns, w)
		return found
	}
	runs, fault := e.runs(ctx, w)
	switch {
	case fault == nil && !runs: // a DEL has removed its rules
		return w.lastFinding()
	case e.settings.Policy == ReportOnly:
		return found
	case fault != nil:
		found.Reason += "; not repaired, because it may have ended: " + fault.Error()
		return found
	case e.settings.Policy == InPlace:
		return e.repair(ctx, netns, w, found)
	case !w.desired.hasController:
		found.Reason += "; it has no controller that would replace it, so it is not evicted"
	}
	return found
}

// check returns the state of the pod. The last finding stays while no transaction
// was committed to nf_tables in the namespace.
func (e *examiner) check(ctx context.Context, netns *podnet.Namespace, w *watched) Finding {
	generation, err := podnet.Read(netns, func() (uint32, error) { return kernel.Generation(ctx) })
	if err != nil {
		return unknown(err)
	}
	now := fingerprint{generation, w.desired.stamp, w.desired.changed}
	if w.lastGood == now && w.roundsUnchanged%fullCheckEvery != 0 {
		w.roundsUnchanged++
		return w.finding
	}
	found := e.compare(ctx, netns, w)
	w.lastGood, w.roundsUnchanged = fingerprint{}, 1
	switch found.State {
	case terms.Captured, terms.Changed, terms.Outdated:
		if w.baseline.Backend == config.NFTables { // tables of iptables are shared with other plugins
			found = checkObstruction(ctx, netns, found)
		}
		if found.State != terms.Unknown {
			w.lastGood = now
		}
	}
	return found
}

// compare compares the namespace with the desired state and with the baseline. A
// name of a chain or a stamp proves nothing: another process of the pod can use it.
func (e *examiner) compare(ctx context.Context, netns *podnet.Namespace, w *watched) Finding {
	state, err := netns.State(ctx)
	if err != nil {
		return unreadable(err)
	}
	w.baseline.confirmBy(e.settings.HistoryDir, w.sandbox)
	known := w.baseline.isKnown()
	rules := w.desired.rules()
	switch {
	case state.Backend == "" && state.Foreign != "" && !known:
		return Finding{State: terms.Foreign, Reason: state.Foreign}
	case state.Backend == "":
		return Finding{State: terms.Uncaptured, Reason: "no rules of the plugin are in its network namespace"}
	case known && state.Backend != w.baseline.Backend:
		return drifted("its rules are in backend %s, and it was captured by %s", state.Backend, w.baseline.Backend)
	case known && lacksPrograms(ctx, state.Backend):
		return Finding{State: terms.Outdated, Reason: fmt.Sprintf("it was captured by backend %s, whose programs the guard does not have: its rules are not compared", state.Backend)}
	case capture.IsStamp(state.Stamp) && state.Stamp != w.desired.stamp:
		return w.baseline.checkOutdated(ctx, netns, state)
	}
	differences, err := kernel.Compare(ctx, netns, e.references, rules, state.Backend)
	switch {
	case err != nil:
		return unreadable(err)
	case len(differences) > 0:
		return drifted("%s", strings.Join(differences, "; "))
	}
	if !w.baseline.matches(state) {
		if err := w.baseline.set(ctx, netns, state); err != nil {
			return unreadable(err)
		}
	}
	if w.desired.changed {
		return Finding{State: terms.Changed, Reason: "its annotations were edited after its creation; a restart applies them"}
	}
	if capture.StampedIPv6(state.Stamp) == capture.Refused {
		return checkRefusedFamily(netns)
	}
	return Finding{State: terms.Captured}
}

// lacksPrograms reports whether the guard, whose image has none, can't compare the rules of a
// backend: those of a pod that was captured before the node's backend became nftables.
func lacksPrograms(ctx context.Context, backend config.Backend) bool {
	_, err := netfilter.Find(ctx, backend)
	_, refused := errors.AsType[capture.Refusal](err)
	return refused
}

// checkRefusedFamily returns Changed for a pod whose rules refuse IPv6, and which has got
// an IPv6 address since: that is safe, and IPv6 does not work.
func checkRefusedFamily(netns *podnet.Namespace) Finding {
	addresses, err := netns.Addresses()
	switch {
	case err != nil:
		return unknown(err)
	case slices.ContainsFunc(addresses, func(a netip.Addr) bool { return a.Is6() && a.IsGlobalUnicast() }):
		return Finding{State: terms.Changed, Reason: "it got an IPv6 address after its creation, and its rules refuse IPv6: recreate the pod; if it gets the address late again, have the proxy expect IPv6, as by ISTIO_DUAL_STACK=true"}
	}
	return Finding{State: terms.Captured}
}

// checkObstruction returns Obstructed where another table could keep packets from
// the rules. That is reported and never repaired: the table belongs to the pod.
func checkObstruction(ctx context.Context, netns *podnet.Namespace, found Finding) Finding {
	obstruction, err := podnet.Read(netns, func() (string, error) { return kernel.Obstruction(ctx) })
	if _, tooLarge := errors.AsType[nfnetlink.TooLarge](err); tooLarge {
		obstruction, err = err.Error()+" in tables in front of the capture rules: they are not read", nil
	}
	switch {
	case err != nil:
		return unknown(err)
	case obstruction == "":
		return found
	case found.Reason != "":
		obstruction += "; also, " + found.Reason
	}
	return Finding{State: terms.Obstructed, Reason: obstruction}
}

// Finding is the result of an examination.
type Finding struct {
	State    terms.State
	Reason   string
	Repaired terms.State // the state before this examination repaired the pod; empty where it did not
}

// isMissing reports whether the pod lacks the desired rules.
func (f Finding) isMissing() bool { return f.State == terms.Uncaptured || f.State == terms.Drifted }

func unknown(err error) Finding {
	return Finding{State: terms.Unknown, Reason: podnet.Explained(err).Error()}
}

func drifted(format string, args ...any) Finding {
	return Finding{State: terms.Drifted, Reason: fmt.Sprintf(format, args...)}
}

// unreadable returns the finding for rules that could not be read: drifted where
// they exceed a limit or keep changing, which ADD's rules never do, else unknown.
func unreadable(err error) Finding {
	_, tooLarge := errors.AsType[nfnetlink.TooLarge](err)
	if tooLarge || errors.Is(err, nfnetlink.ErrChanging) {
		return drifted("%s", err)
	}
	return unknown(err)
}
