// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"fmt"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/kernel"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/install/trace"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// Trace returns which of the pod's desired rules decides about a packet, the packet's path through these
// rules, and the reasons for which the result may be wrong. If the packet has no interface, Trace derives
// it from the pod's routes or, for an inbound packet, from the pod's addresses. With the policy
// ReportOnly, Trace changes nothing. Errors: ErrNotHere.
func (g *Guard) Trace(ctx context.Context, namespace, name string, p trace.Packet) (report.Trace, error) {
	sandbox, err := g.find(ctx, namespace, name)
	if err != nil {
		return report.Trace{}, err
	}
	t := report.Trace{Form: report.ExplanationForm, Namespace: namespace, Name: name, UID: sandbox.UID}
	if !g.asker.isMeshed(sandbox) {
		t.NotMeshed = notMeshed
		return t, nil
	}
	w := &watched{sandbox: sandbox, baseline: g.store.load(sandbox.ID)}
	found, observed := g.examiner.examine(ctx, w, &p)
	switch {
	case found.Code == report.Exempt && w.desired.exemption.Cause != capture.InitContainer, // whose rules are not known
		found.Code == report.Uncaptured, found.Code == report.InjectedLater:
		t.NotCaptured = found.Reason
		return t, nil
	case w.desired.intent == nil || observed.Generation == 0:
		t.Doubts = []string{doubtOf(found)}
		return t, nil
	case observed.Traced.Fault != nil:
		return t, observed.Traced.Fault
	}
	t.Doubts = doubtsAbout(found, observed.Traced)
	t.Assumptions = []string{
		"no program of tc, XDP or a control group changes or drops the packet, and no rule behind the capture rules drops or translates it",
	}
	path := trace.Of(w.desired.rules(), observed.Traced.Packet)
	path.NFTables = observed.Backend == config.NFTables
	if !path.NFTables {
		t.Assumptions = append(t.Assumptions, "in iptables' built-in chains, no rule of another program is in front of the pod's own")
	}
	t.Path = &path
	return t, nil
}

// doubtsAbout returns the reasons for which other rules than the desired ones may decide about a
// packet.
func doubtsAbout(found report.Finding, traced kernel.Traced) (doubts []string) {
	switch found.Code {
	case report.Captured, report.Changed, report.Obstructed:
	default:
		doubts = append(doubts, doubtOf(found))
	}
	if traced.Unread != "" {
		return append(doubts, "other tables are not read: "+traced.Unread)
	}
	for _, hook := range traced.Hooks[:min(len(traced.Hooks), report.MaxDoubts)] {
		doubts = append(doubts, "other rules can affect the packet: "+hook)
	}
	if more := len(traced.Hooks) - report.MaxDoubts; more > 0 {
		doubts = append(doubts, fmt.Sprintf("and %d more", more))
	}
	return doubts
}

// doubtOf says why the desired rules may not be the pod's rules: the pod's state and its reason. For a
// captured pod, whose rules are then in iptables, it says why the guard can't count connections.
func doubtOf(found report.Finding) string {
	if found.Code == report.Captured {
		return "the pod is captured by iptables, and the guard counts connections only with nftables"
	}
	return fmt.Sprintf("the pod is %s: %s", found.Code, found.Reason)
}
