// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/kernel"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

func finding(state report.Code, reason string) report.Finding {
	return report.Finding{Code: state, Severity: state.Severity(), Reason: reason}
}

func lacksRules(state report.Code) bool { return state == report.Uncaptured || state == report.Drifted }

// isSettled reports whether a pod in this state has rules that need no repair.
func isSettled(state report.Code) bool {
	return slices.Contains([]report.Code{report.Captured, report.Changed, report.Outdated, report.Obstructed}, state)
}

// judge compares an observation with the desired state and the baseline. It returns the finding, and
// the baseline for the next examination. differences is the result of examiner.differences.
func judge(d desired, b baseline, o kernel.Observation, differences []string) (report.Finding, baseline) {
	found, now := judgeRules(d, b, o, differences)
	switch {
	case !isSettled(found.Code):
	case o.ObstructionFault != nil:
		found = unknown(o.ObstructionFault)
	case o.Obstruction != "": // reported but never repaired, because it is another program's
		reason := o.Obstruction
		if found.Reason != "" {
			reason += "; also, " + found.Reason
		}
		found = finding(report.Obstructed, reason)
	}
	return found, now
}

// judgeRules judges our own rules or, if there are none and the guard never knew of any, another
// plugin's. Once the baseline has a digest, it trusts neither the name of a chain nor a stamp, because a
// process of the pod can write both.
func judgeRules(d desired, b baseline, o kernel.Observation, differences []string) (report.Finding, baseline) {
	if b.Backend == config.IPTables && o.Backend != "" && o.Backend != config.NFTables {
		b.Backend = o.Backend // the record of an ADD names the configured backend, which can be the alias of both variants
	}
	known, other := b.isKnown(), d.isOther(o.Stamp)
	// A guard that ended before it stored the baseline can have updated rules of iptables-nft. It can also
	// have updated rules of iptables-legacy, but without removing these.
	updated := b.Backend == config.IPTablesNFT && o.Digest == d.reference // the digest of rules in nftables
	_, noPrograms := errors.AsType[capture.Refusal](o.RulesFault)
	switch {
	case o.Backend == "" && o.RulesFault != nil:
		return unreadable(o.RulesFault), b
	case o.Backend == "" && o.Foreign != "" && !known:
		return finding(report.Foreign, o.Foreign), b
	case o.Backend == "":
		return finding(report.Uncaptured, "no rules of the plugin are in its network namespace"), b
	case known && o.Backend != b.Backend && !updated:
		return drifted("its rules are in backend %s, and it was captured by %s", o.Backend, b.Backend), b
	case known && noPrograms: // for example, the pod was captured before the node's backend became nftables
		return finding(report.Outdated, fmt.Sprintf("it was captured by backend %s, whose programs the guard does not have: "+
			"its rules are not compared", o.Backend)), b
	case other && known && b.Stamp != o.Stamp:
		return drifted("its rules have stamp %q, and it was captured with %q", o.Stamp, b.Stamp), b
	case o.RulesFault != nil:
		return unreadable(o.RulesFault), b
	case other && kernel.Comparable(b.Digest) && b.Digest != o.Digest:
		return drifted("its rules are those of another version or configuration and were changed: %s", o.Stamp), b
	case len(differences) > 0:
		return drifted("%s", strings.Join(differences, "; ")), b
	}
	now := baselineOf(o)
	now.Unconfirmed = other && (!known || b.Unconfirmed)
	switch {
	case other && o.Digest != d.reference:
		return finding(report.Outdated, "its rules are those of another version or configuration: "+o.Stamp), now
	case d.changed:
		return finding(report.Changed, "its annotations were edited after its creation: to apply them, edit its template and restart it"), now
	case capture.StampedIPv6(o.Stamp) == capture.Refused &&
		slices.ContainsFunc(o.Addresses, func(a netip.Addr) bool { return a.Is6() && a.IsGlobalUnicast() }):
		return finding(report.Changed, "it got an IPv6 address after its creation, and its rules refuse IPv6: recreate the pod; "+
			"if it gets the address late again, make its mesh expect IPv6 (Istio: ISTIO_DUAL_STACK=true), which netconf.ipv6=never overrides"), now
	}
	return finding(report.Captured, ""), now
}

// judgeRefused returns the finding for a pod whose desired rules are unknown because of err: uncaptured
// if the pod has no rules, and otherwise unknown.
func judgeRefused(err error, b baseline, o kernel.Observation) report.Finding {
	found, _ := judgeRules(desired{}, b, o, nil)
	if found.Code != report.Uncaptured {
		return unknown(err)
	}
	found.Reason += ", and the plugin can't decide which ones it needs: " + unknown(err).Reason
	return found
}

func unknown(err error) report.Finding {
	return finding(report.Unknown, podnet.Explained(err).Error())
}

func drifted(format string, args ...any) report.Finding {
	return finding(report.Drifted, fmt.Sprintf(format, args...))
}

// unreadable returns the finding for rules that could not be read. The pod is drifted if the rules
// exceed a limit or keep changing, because rules of an ADD do neither. After any other error, the pod is
// unknown.
func unreadable(err error) report.Finding {
	_, tooLarge := errors.AsType[nfnetlink.TooLarge](err)
	if tooLarge || errors.Is(err, nfnetlink.ErrChanging) {
		return drifted("%s", err)
	}
	return unknown(err)
}
