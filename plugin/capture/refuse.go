// SPDX-License-Identifier: Apache-2.0

package capture

// nat decides once for each entry of conntrack, by the conditions of the packet that
// created it. A SYN with other conditions can meet such an entry: from another
// interface or owner, in the other direction, after an attempt without an answer; or
// conntrack assigns it to no entry at all. The chains ISTIO_SYN apply the policy of nat
// to these SYNs, and refuse what it captures. They also refuse IPv6 where the pod has
// no address that the mesh knows.

// checksInbound reports whether SYNs that arrive pass ISTIO_SYN. TPROXY needs no such
// check: it decides about each SYN.
func (b *builder) checksInbound() bool { return b.hasInbound() || b.refusesInbound() }

// refusesInbound reports whether IPv6 connections to the pod are refused.
func (b *builder) refusesInbound() bool { return b.IPv6 == Refused && b.capturesInbound() }

// refusesDNS reports whether the pod's queries over UDP are refused by IPv6, as those over
// TCP are.
func (b *builder) refusesDNS() bool { return b.IPv6 == Refused && b.capturesDNS() }

// jumpToSYN has SYNs pass ISTIO_SYN.
func (b *builder) jumpToSYN() {
	m := Match{Protocol: TCP, Begins: true}
	if b.IPv6 == Ignored {
		m.Family = IPv4
	}
	b.add(m, Action{Verdict: Jump, Chain: ChainSYN}, "begins a connection")
}

var refuse = Action{Verdict: Goto, Chain: ChainRefuse}

// refusal makes a rule of nat one about SYNs: what nat sends to the proxy is refused. Rules
// about UDP are left out, except of queries that are refused by IPv6.
func (b *builder) refusal(r Rule) (Rule, bool) {
	if r.Match.Protocol == UDP {
		if b.chains[len(b.chains)-1].Table != Filter || !b.refusesDNS() {
			return r, false
		}
		r.Match.Family = IPv6
	}
	if r.Do == toInbound || r.Do == toOutbound || r.Do.Verdict == Redirect {
		r.Do = refuse
	}
	return r, true
}

// inboundSYNs drops: iptables has no reset in PREROUTING.
func (b *builder) inboundSYNs() {
	if !b.checksInbound() {
		return
	}
	b.chain(Mangle, ChainSYN)
	b.exempt(Match{FromLo: true}, "decided in OUTPUT")
	if b.refusesInbound() {
		b.exempt(Match{Family: IPv6, In: b.excludedInterfaces()}, "excluded interface")
		b.add(Match{Family: IPv6}, refuse, "the pod has no IPv6 address")
	}
	b.natDecisions()
	b.addFlow(b.inbound, b.refusal)
	b.chain(Mangle, ChainRefuse)
	b.add(Match{}, Action{Verdict: Drop}, "it would bypass the proxy")
}

// outboundSYNs answers with a reset: the application knows at once, and newer kernels
// (6.3) let the entry expire in seconds.
func (b *builder) outboundSYNs() {
	b.chain(Filter, ChainSYN)
	// An IPv6 socket can bind to any address. A SYN in another host's name would begin a
	// connection on lo, which the answer then carries on with that host.
	forged := Match{Family: IPv6, ToLo: true, ForeignSource: true}
	if b.transparent() { // the proxy connects in its clients' names
		forged.ExceptMark = ProxyMark
	}
	b.add(forged, refuse, "sent in another host's name")
	if b.IPv6 == Refused {
		b.exempt(Match{Family: IPv6, ToLo: true}, "loopback")
	}
	b.natDecisions()
	b.addFlow(b.outbound, b.refusal)
	b.chain(Filter, ChainRefuse)
	b.add(Match{Protocol: TCP}, Action{Verdict: Reject}, "it would bypass the proxy")
	if b.refusesDNS() {
		b.add(Match{Family: IPv6}, Action{Verdict: Drop}, "it would bypass the proxy")
	}
}

// natDecisions returns what nat decides about, or has captured.
func (b *builder) natDecisions() {
	unconfirmed, translated := Match{Unconfirmed: true}, Match{Original: true, Translated: true}
	if b.IPv6 == Refused { // nat has no rules for it
		unconfirmed.Family, translated.Family = IPv4, IPv4
	}
	b.exempt(unconfirmed, "nat decides")
	b.exempt(translated, "captured")
}
