// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/capture-cni/capture-cni/install/kernel"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

// Finding is the result of an examination.
type Finding struct {
	State    report.PodState
	Reason   string
	Repaired report.PodState // the state before this examination repaired the pod; empty where it did not
}

// isMissing reports whether the pod lacks the desired rules.
func (f Finding) isMissing() bool { return f.State == report.Uncaptured || f.State == report.Drifted }

// isSettled reports whether the pod has rules that need no repair.
func (f Finding) isSettled() bool {
	switch f.State {
	case report.Captured, report.Changed, report.Outdated, report.Obstructed:
		return true
	}
	return false
}

// judge compares what was observed with the desired state and with the baseline, and
// returns the baseline from now on. The differences are those of rules that bear the desired
// stamp or none.
func judge(d desired, b baseline, o kernel.Observation, differences []string) (Finding, baseline) {
	found, now := judgeRules(d, b, o, differences)
	switch {
	case !found.isSettled():
	case o.ObstructionFault != nil:
		found = unknown(o.ObstructionFault)
	case o.Obstruction != "": // reported and never repaired: the table belongs to the pod
		reason := o.Obstruction
		if found.Reason != "" {
			reason += "; also, " + found.Reason
		}
		found = Finding{State: report.Obstructed, Reason: reason}
	}
	return found, now
}

// judgeRules judges our rules alone. A name of a chain or a stamp proves nothing: another
// process of the pod can use it.
func judgeRules(d desired, b baseline, o kernel.Observation, differences []string) (Finding, baseline) {
	known := b.isKnown()
	_, noPrograms := errors.AsType[capture.Refusal](o.RulesFault)
	switch {
	case o.Backend == "" && o.RulesFault != nil:
		return unreadable(o.RulesFault), b
	case o.Backend == "" && o.Foreign != "" && !known:
		return Finding{State: report.Foreign, Reason: o.Foreign}, b
	case o.Backend == "":
		return Finding{State: report.Uncaptured, Reason: "no rules of the plugin are in its network namespace"}, b
	case known && o.Backend != b.Backend:
		return drifted("its rules are in backend %s, and it was captured by %s", o.Backend, b.Backend), b
	case known && noPrograms: // it was captured before the node's backend became nftables
		return Finding{State: report.Outdated, Reason: fmt.Sprintf("it was captured by backend %s, whose programs the guard does not have: "+
			"its rules are not compared", o.Backend)}, b
	case capture.IsStamp(o.Stamp) && o.Stamp != d.stamp:
		return judgeOutdated(b, o)
	case o.RulesFault != nil:
		return unreadable(o.RulesFault), b
	case len(differences) > 0:
		return drifted("%s", strings.Join(differences, "; ")), b
	case !b.matches(o):
		b = baselineOf(o)
	}
	switch {
	case d.changed:
		return Finding{State: report.Changed, Reason: "its annotations were edited after its creation; a restart applies them"}, b
	case capture.StampedIPv6(o.Stamp) == capture.Refused &&
		slices.ContainsFunc(o.Addresses, func(a netip.Addr) bool { return a.Is6() && a.IsGlobalUnicast() }):
		return Finding{State: report.Changed, Reason: "it got an IPv6 address after its creation, and its rules refuse IPv6: recreate the pod; " +
			"if it gets the address late again, have the proxy expect IPv6, as by ISTIO_DUAL_STACK=true"}, b
	}
	return Finding{State: report.Captured}, b
}

// judgeOutdated compares rules of another version, which the guard can't render, with the
// baseline. The first examination makes them the baseline.
func judgeOutdated(b baseline, o kernel.Observation) (Finding, baseline) {
	switch {
	case b.isKnown() && b.Stamp != o.Stamp:
		return drifted("its rules have stamp %q, and it was captured with %q", o.Stamp, b.Stamp), b
	case o.RulesFault != nil:
		return unreadable(o.RulesFault), b
	}
	now := baselineOf(o)
	if kernel.Comparable(b.Digest) && b.Digest != now.Digest {
		return drifted("its rules are those of another version or configuration and were changed: %s", o.Stamp), b
	}
	now.Unconfirmed = !b.isKnown() || b.Unconfirmed
	return Finding{State: report.Outdated, Reason: "its rules are those of another version or configuration: " + o.Stamp}, now
}

func unknown(err error) Finding {
	return Finding{State: report.Unknown, Reason: podnet.Explained(err).Error()}
}

func drifted(format string, args ...any) Finding {
	return Finding{State: report.Drifted, Reason: fmt.Sprintf(format, args...)}
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
