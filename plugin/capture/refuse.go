// SPDX-License-Identifier: Apache-2.0

package capture

// nat decides once for each conntrack entry, by the entry's first packet. A later SYN with the same
// addresses and ports can have another interface, owner or direction, or conntrack can assign it to no
// entry. The chains ISTIO_SYN apply nat's policy to such SYNs, and refuse those that nat would redirect.
// They also refuse IPv6 in a pod without an IPv6 address.

// checksInbound reports whether SYNs that arrive enter ISTIO_SYN. In a fenced pod they do not, because
// the fence judges each SYN. With TPROXY, which also decides about each SYN, they do only if ISTIO_SYN
// refuses IPv6 or the pod has rerouted interfaces.
func (b *builder) checksInbound() bool {
	return b.Fence == nil && (len(b.inbound) > 0 || b.refusesInbound())
}

func (b *builder) refusesInbound() bool { return b.IPv6 == Refused && b.capturesInbound() }

// refusesDNS reports whether the rules refuse the pod's UDP queries over IPv6. TCP queries over IPv6
// are refused like other TCP connections.
func (b *builder) refusesDNS() bool { return b.IPv6 == Refused && b.leadsQueries(Redirect, Translate) }

func (b *builder) jumpToSYN() {
	m := Match{Protocol: TCP, Begins: true}
	if b.IPv6 == Ignored {
		m.Family = IPv4
	}
	b.add(m, Action{Verdict: Jump, Chain: ChainSYN}, "begins a connection")
}

var refuse = Action{Verdict: Goto, Chain: ChainRefuse}

// refusal converts a rule of nat to a rule for ISTIO_SYN, which refuses the packets that nat would
// redirect. It omits rules about UDP, except those about IPv6 queries that are refused.
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

// inboundSYNs adds the chains that judge SYNs from outside the pod. They drop refused SYNs, because
// iptables can't send a reset in PREROUTING.
func (b *builder) inboundSYNs() {
	if !b.checksInbound() {
		return
	}
	b.chain(Mangle, ChainSYN)
	b.exempt(Match{FromLo: true}, "decided in OUTPUT")
	b.refuseInbound(refuse)
	b.natDecisions()
	b.exemptProxysPort()
	b.addFlow(b.inbound, b.refusal)
	b.chain(Mangle, ChainRefuse)
	b.add(Match{}, Action{Verdict: Drop}, "it would bypass the proxy")
}

// exemptProxysPort exempts inbound packets to the proxy's port. They reach the proxy although nat leaves no
// translation in their conntrack entry, because a redirection to that port changes nothing.
func (b *builder) exemptProxysPort() {
	if b.redirectsInbound() {
		m := tcpPorts("", PortRange{b.InboundPort, b.InboundPort})
		if b.IPv6 == Ignored {
			m.Family = IPv4
		}
		b.exempt(m, "the proxy's inbound port")
	}
}

// refuseInbound refuses IPv6 in a pod without an IPv6 address, except on excluded interfaces.
func (b *builder) refuseInbound(refused Action) {
	if b.refusesInbound() {
		b.exempt(Match{Family: IPv6, In: b.excludedInterfaces()}, "excluded interface")
		b.add(Match{Family: IPv6}, refused, "the pod has no IPv6 address")
	}
}

// outboundSYNs adds the chains that judge the pod's own SYNs. They answer refused SYNs with a reset, so
// that the application notices at once, and kernels since 6.3 let the conntrack entry expire in
// seconds.
func (b *builder) outboundSYNs() {
	b.chain(Filter, ChainSYN)
	// With IPV6_FREEBIND, a process can bind an IPv6 socket to another host's address. Its SYN on lo
	// would create a conntrack entry, through which that host's answer could enter the pod uncaptured.
	forged := Match{Family: IPv6, ToLo: true, ForeignSource: true}
	if b.usesTPROXY() { // the proxy connects in its clients' names
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

// natDecisions adds rules that exempt packets about which nat decides, and packets of connections that
// nat captured.
func (b *builder) natDecisions() {
	unconfirmed, translated := Match{Unconfirmed: true}, Match{Original: true, Translated: true}
	if b.IPv6 == Refused { // nat has no rules for IPv6
		unconfirmed.Family, translated.Family = IPv4, IPv4
	}
	b.exempt(unconfirmed, "nat decides")
	b.exempt(translated, "captured")
}
