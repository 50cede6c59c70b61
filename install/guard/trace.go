// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/kernel"
	"github.com/capture-cni/capture-cni/install/trace"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

// Trace writes which rule decides about a packet of one pod, the packet's path through
// the rules, and what keeps that from being certain. A packet without an interface gets
// that of the pod's routes. It changes nothing. Errors: ErrNotHere.
func (g *Guard) Trace(ctx context.Context, namespace, name string, p trace.Packet, out io.Writer) error {
	sandbox, err := g.find(ctx, namespace, name)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "pod          %s/%s, UID %s\n", namespace, name, sandbox.UID)
	if !isMeshed(sandbox) {
		fmt.Fprintln(out, "in the mesh  "+notMeshed)
		return nil
	}
	w := &watched{sandbox: sandbox, baseline: g.store.load(sandbox.ID)}
	found := g.examiner.examine(ctx, w)
	switch {
	case found.State == Exempt:
		fmt.Fprintf(out, "verdict      passes: the pod is not captured\nbecause      %s\n", found.Reason)
		return nil
	case w.desired.intent == nil:
		fmt.Fprintf(out, "can't tell   %s\n", doubtOf(found))
		return nil
	}
	netns, err := podnet.Open(ctx, sandbox.NetNS)
	if err != nil {
		return err
	}
	defer netns.Close()
	if p.Interface == "" {
		if p, err = kernel.WithInterface(netns, p); err != nil {
			return err
		}
	}
	return traceIn(ctx, netns, found, w.desired.rules(), p, out)
}

// traceIn writes the trace of a packet in a pod's namespace, after all doubts.
func traceIn(ctx context.Context, netns *podnet.Namespace, found Finding, rules capture.Ruleset, p trace.Packet, out io.Writer) error {
	state, err := netns.State(ctx)
	if err != nil {
		return err
	}
	doubts, err := doubtsAbout(ctx, netns, found, p)
	if err != nil {
		return err
	}
	for _, doubt := range doubts {
		fmt.Fprintf(out, "can't tell   %s\n", doubt)
	}
	if len(doubts) > 0 {
		fmt.Fprintln(out, "otherwise    leaving that aside, the pod's own rules decide as follows")
	}
	assumptions := []string{"no program of tc, XDP or a control group changes or drops the packet, and no rule behind these drops it"}
	if state.Backend != config.NFTables {
		assumptions = append(assumptions, "in iptables' built-in chains, no rule of another program is in front of the pod's own")
	}
	_, err = io.WriteString(out, trace.Of(rules, p).Text(assumptions...))
	return err
}

// doubtsAbout returns why the desired rules may not be those that decide about a packet.
func doubtsAbout(ctx context.Context, netns *podnet.Namespace, found Finding, p trace.Packet) (doubts []string, err error) {
	switch found.State {
	case Captured, Changed, Obstructed:
	default:
		doubts = append(doubts, doubtOf(found))
	}
	hooks, err := kernel.HooksInFront(ctx, netns, p)
	if tooLarge, ok := errors.AsType[nfnetlink.TooLarge](err); ok {
		return append(doubts, "other tables are not read: "+tooLarge.Error()), nil
	}
	for _, hook := range hooks {
		doubts = append(doubts, "the packet meets other rules first: "+hook)
	}
	return doubts, err
}

func doubtOf(found Finding) string {
	return fmt.Sprintf("the pod is %s: %s", found.State, found.Reason)
}
