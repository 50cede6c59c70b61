// SPDX-License-Identifier: Apache-2.0

package capture

// A chain that Istio has, too, has the name that Istio's runbooks use. With ISTIO_PROXY and
// ISTIO_OWNER_GROUPS, which Istio lacks, no rule of nat needs a negated match. With iptables, the only
// rules that the plugin adds to built-in chains are jumps to its own chains, because a RETURN in a
// built-in chain would skip other programs' rules.
const (
	// ChainPrefix is the prefix of the names of all chains of a Ruleset except the built-in ones.
	ChainPrefix = "ISTIO_"

	// ChainRefuse refuses and counts packets that would bypass the proxy, in tables Mangle and Filter.
	ChainRefuse = "ISTIO_REFUSE"

	// ChainRefuseInbound refuses and counts packets that arrive in a fenced pod and would bypass the
	// proxy, in table Filter.
	ChainRefuseInbound = "ISTIO_REFUSE_IN"

	chainInbound     = "ISTIO_INBOUND"
	chainInRedirect  = "ISTIO_IN_REDIRECT"
	chainOutput      = "ISTIO_OUTPUT"
	chainRedirect    = "ISTIO_REDIRECT"
	chainOutputDNS   = "ISTIO_OUTPUT_DNS"
	chainTProxy      = "ISTIO_TPROXY"
	chainInTProxy    = "ISTIO_IN_TPROXY" // connections that nat counts and TPROXY captures
	chainDeliver     = "ISTIO_DELIVER"   // to the proxy by TPROXY
	chainLoopback    = "ISTIO_LOOPBACK"  // packets that must not leave the pod
	chainDrop        = "ISTIO_DROP"
	ChainSYN         = "ISTIO_SYN"          // packets that begin a connection and, if IPv6 is refused, DNS queries over IPv6
	chainProxy       = "ISTIO_PROXY"        // packets that the proxy itself sends
	chainOwnerGroups = "ISTIO_OWNER_GROUPS" // packets that the captured groups send
)

// Rules converts an Intent to a Ruleset, which backends encode without further decisions. nat is the
// last table, because iptables commits each table separately, and the Stamp in nat proves that the
// rules are complete.
func Rules(in Intent) Ruleset {
	b := builder{Intent: in, mesh: meshOf(in.Mesh)}
	b.inbound, b.outbound = flowsOf(&b.Intent)

	b.dnsZones()

	if b.DropInvalid || b.usesTPROXY() || b.checksInbound() {
		b.baseChain(Mangle, Prerouting)
		if b.checksInbound() {
			b.jumpToSYN()
		}
		b.leaveIPv6()
		if b.DropInvalid { // nat skips these packets, and the kernel would answer them with a reset
			b.add(Match{Invalid: true}, Action{Verdict: Jump, Chain: chainDrop}, "INVALID_DROP is set")
		}
		if b.usesTPROXY() {
			b.add(Match{Protocol: TCP}, Action{Verdict: Jump, Chain: chainInbound}, "inbound TCP")
		}
	}
	if b.usesTPROXY() {
		b.baseChainWithoutIPv6(Mangle, Output)
		b.add(Match{Protocol: TCP}, Action{Verdict: Jump, Chain: chainOutput}, "outbound TCP")
	}
	b.stayInside()
	b.inboundSYNs()
	if b.DropInvalid {
		b.chain(Mangle, chainDrop)
		b.exempt(Match{In: b.excludedInterfaces()}, "excluded interface")
		b.add(Match{}, Action{Verdict: Drop}, "out-of-window packet")
	}
	b.transparentChains()

	b.baseChain(Filter, Output)
	b.jumpToSYN()
	if b.refusesDNS() {
		query := dns(UDP)
		query.Family, query.Original = IPv6, true
		b.add(query, Action{Verdict: Jump, Chain: ChainSYN}, "outbound DNS")
	}
	b.jumpToFence(chainFenceOut)
	b.outboundSYNs()
	b.fenceChains()

	natInbound := b.natInbound() // b.inbound, except with TPROXY
	if len(natInbound) > 0 {
		b.baseChainWithoutIPv6(NAT, Prerouting)
		b.add(Match{Protocol: TCP}, Action{Verdict: Jump, Chain: chainInbound}, "inbound TCP")
	}
	b.baseChainWithoutIPv6(NAT, Output)
	b.add(Match{Protocol: TCP}, Action{Verdict: Jump, Chain: chainOutput}, "outbound TCP")
	if b.leadsQueries(Redirect, Translate) {
		b.add(dns(UDP), Action{Verdict: Jump, Chain: chainOutput}, "outbound DNS")
	}
	if len(natInbound) > 0 {
		b.chain(NAT, chainInbound)
		b.addFlow(natInbound, b.asNATInbound)
	}
	b.chain(NAT, chainOutput)
	b.addFlow(b.outbound, unchanged)

	if b.usesTPROXY() {
		b.chain(NAT, chainInTProxy)
		b.add(Match{Protocol: TCP}, Action{Verdict: Return}, "TPROXY captures it")
	}
	if b.InboundPort != 0 {
		b.chain(NAT, chainInRedirect)
		b.add(Match{Protocol: TCP}, Action{Verdict: Redirect, Port: b.InboundPort}, "to the proxy's inbound port")
	}
	if b.OutboundPort != 0 {
		b.chain(NAT, chainRedirect)
		b.add(Match{Protocol: TCP}, Action{Verdict: Redirect, Port: b.OutboundPort}, "to the proxy's outbound port")
	}

	rs := Ruleset{IPv6: b.IPv6, Chains: b.chains}
	if b.usesTPROXY() { // the application's replies to the proxy have the client's address as destination
		rs.LocalMark = ProxyMark
	}
	return rs
}

// stayInside drops packets to the proxy or the application that would leave the pod. A socket that is
// bound to an interface sends through this interface, even if nat has changed the destination to
// localhost.
func (b *builder) stayInside() {
	b.baseChainWithoutIPv6(Mangle, Postrouting)
	inside := Action{Verdict: Jump, Chain: chainLoopback}
	if b.usesTPROXY() {
		b.add(Match{ConnMark: ProxyMark}, inside, "between the proxy and the application")
	}
	b.add(Match{Dst: one(loopbackIPv4)}, inside, "localhost")
	b.add(Match{Dst: one(localhostIPv6)}, inside, "localhost")
	b.chain(Mangle, chainLoopback)
	b.exempt(Match{ToLo: true}, "loopback")
	b.add(Match{}, Action{Verdict: Drop}, "past the proxy")
}
