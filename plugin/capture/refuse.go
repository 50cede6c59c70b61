// SPDX-License-Identifier: Apache-2.0

package capture

// nat decides once for each conntrack entry, when its first packet arrives. A later SYN can meet that
// entry with another interface, owner or direction, or can belong to no entry. The chains ISTIO_SYN
// apply nat's policy to such SYNs, and refuse those that nat would redirect. They also refuse IPv6 in a
// pod without an IPv6 address.

// checksInbound reports whether SYNs that arrive enter ISTIO_SYN. A fence does not need this check,
// because it judges each SYN. TPROXY, which decides about each SYN, needs it only to refuse IPv6.
func (b *builder) checksInbound() bool {
	return b.Fence == nil && (b.hasInbound() || b.refusesInbound())
}

// refusesInbound reports whether IPv6 connections to the pod are refused.
func (b *builder) refusesInbound() bool { return b.IPv6 == Refused && b.capturesInbound() }

// refusesDNS reports whether the rules refuse the pod's UDP queries over IPv6. TCP queries over IPv6
// are refused like any other TCP.
func (b *builder) refusesDNS() bool { return b.IPv6 == Refused && b.leadsQueries(Redirect, Translate) }

// jumpToSYN adds a rule by which SYNs enter ISTIO_SYN.
func (b *builder) jumpToSYN() {
	m := Match{Protocol: TCP, Begins: true}
	if b.IPv6 == Ignored {
		m.Family = IPv4
	}
	b.add(m, Action{Verdict: Jump, Chain: ChainSYN}, "begins a connection")
}

var refuse = Action{Verdict: Goto, Chain: ChainRefuse}

// refusal converts a rule of nat to a rule about SYNs, which refuses the packets that nat would
// redirect. It omits rules about UDP, except those about queries over IPv6 that are refused.
func (b *builder) refusal(r Rule) (Rule, bool) {
	if r.Match.Protocol == UDP {
		if b.chains[len(b.chains)-1].Table != Filter || !b.refusesDNS() || r.Match.OnlyFamily() == IPv4 {
			return r, false
		}
		r.Match.Family = IPv6
	}
	if r.Do == toInbound || r.Do == toOutbound || r.Do.translates() {
		r.Do = refuse
	}
	return r, true
}

// inboundSYNs drops the refused SYNs, because iptables can't send a reset in PREROUTING.
func (b *builder) inboundSYNs() {
	if !b.checksInbound() {
		return
	}
	b.chain(Mangle, ChainSYN)
	b.exempt(Match{FromLo: true}, "decided in OUTPUT")
	b.refuseInbound(refuse)
	b.natDecisions()
	b.addFlow(b.inbound, b.refusal)
	b.chain(Mangle, ChainRefuse)
	b.add(Match{}, Action{Verdict: Drop}, "it would bypass the proxy")
}

// refuseInbound refuses IPv6 in a pod without an IPv6 address, except on excluded interfaces.
func (b *builder) refuseInbound(refused Action) {
	if b.refusesInbound() {
		b.exempt(Match{Family: IPv6, In: b.excludedInterfaces()}, "excluded interface")
		b.add(Match{Family: IPv6}, refused, "the pod has no IPv6 address")
	}
}

// outboundSYNs answers the refused SYNs with a reset. So the application notices at once, and kernels
// since 6.3 let the conntrack entry expire in seconds.
func (b *builder) outboundSYNs() {
	b.chain(Filter, ChainSYN)
	// An IPv6 socket can bind to any address. A SYN with another host's address as its source would
	// begin a connection on lo, which that host's answer would then continue.
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

// natDecisions returns packets about which nat decides, and packets of captured connections.
func (b *builder) natDecisions() {
	unconfirmed, translated := Match{Unconfirmed: true}, Match{Original: true, Translated: true}
	if b.IPv6 == Refused { // nat has no rules for IPv6
		unconfirmed.Family, translated.Family = IPv4, IPv4
	}
	b.exempt(unconfirmed, "nat decides")
	b.exempt(translated, "captured")
}
