// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"cmp"
	"net/netip"
	"strings"
)

// flow is a mesh's complete policy for one hook, as chains of the table nat. Rules adds it to nat and,
// with refusals in place of redirections, to ISTIO_SYN and to a fence. The first rule that matches a
// packet decides, and packets that no rule matches pass. The first chain has no name, because addFlow
// adds its rules to the last chain of a builder.
type flow []Chain

// flowsOf returns two flows of the Intent's mesh: for packets that arrive in the pod, and for packets
// that its processes send.
func flowsOf(in *Intent) (inbound, outbound flow) {
	return meshOf(in.Mesh).inbound(in), meshOf(in.Mesh).outbound(in)
}

// These actions jump to chains outside the flow. Those chains redirect packets to the proxy's inbound
// or outbound port.
var (
	toInbound  = Action{Verdict: Jump, Chain: chainInRedirect}
	toOutbound = Action{Verdict: Jump, Chain: chainRedirect}
)

func (in *Intent) toDNS() Action { return Action{Verdict: Redirect, Port: in.DNSPort} }

// translates reports whether nat changes the destination of matching packets.
func (do Action) translates() bool { return do.Verdict == Redirect || do.Verdict == Translate }

// gotoChain returns the action that continues in another chain, without a return to this chain.
func gotoChain(chain string) Action { return Action{Verdict: Goto, Chain: chain} }

func (f *flow) chain(name string) { *f = append(*f, Chain{Name: name}) }

func (f *flow) add(m Match, do Action, why string) {
	if len(*f) == 0 {
		f.chain("")
	}
	last := &(*f)[len(*f)-1]
	last.Rules = append(last.Rules, Rule{Match: m, Do: do, Why: why})
}

// exempt adds a rule that lets matching packets pass uncaptured. For an empty match, it adds no rule.
func (f *flow) exempt(m Match, why string) {
	if !m.empty() {
		f.add(m, Action{Verdict: Return}, why)
	}
}

func (f *flow) exemptTraffic(in *Intent) {
	for _, m := range in.exemptMatches() {
		f.exempt(m, "exempt")
	}
}

func (f *flow) translate(in *Intent) {
	for _, t := range in.Translations {
		m := Match{Dst: given(t.From)}
		if m.Dst.IsZero() {
			m.Family = FamilyOf(t.To.Addr())
		}
		for _, protocol := range []Protocol{TCP, UDP} {
			m.Protocol, m.DstPort = protocol, dns(protocol).DstPort
			// nat changes nothing in a query to this very server, so its conntrack entry has no translation.
			if to := t.To.Addr(); cmp.Or(t.To.Port(), portDNS) == portDNS {
				f.exempt(Match{Protocol: protocol, Dst: one(netip.PrefixFrom(to, to.BitLen())), DstPort: m.DstPort}, "sent to the mesh's DNS server")
			}
			f.add(m, Action{Verdict: Translate, To: t.To}, "DNS over "+strings.ToUpper(string(protocol)))
		}
	}
}

// addFlow adds the rules of a flow's first chain to the last chain of the builder, and the flow's other
// chains to the same table. It adds the result of rewrite for each rule, or none if rewrite returns
// false.
func (b *builder) addFlow(f flow, rewrite func(Rule) (Rule, bool)) {
	table := b.chains[len(b.chains)-1].Table
	for _, chain := range f {
		if chain.Name != "" {
			b.chain(table, chain.Name)
		}
		for _, r := range chain.Rules {
			if r, ok := rewrite(r); ok {
				b.add(r.Match, r.Do, r.Why)
			}
		}
	}
}

func unchanged(r Rule) (Rule, bool) { return r, true }
