// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"net/netip"
	"slices"
)

// Chains, as every Istio runbook expects them. ISTIO_PROXY and
// ISTIO_OWNER_GROUPS are ours: they let exemptions stand first instead of in
// negated matches. A built-in chain holds jumps alone, so that an exemption
// never keeps a packet from somebody else's rules.
const (
	// ChainPrefix begins the names of all chains but the built-in ones.
	ChainPrefix = "ISTIO_"

	chainInbound     = "ISTIO_INBOUND"
	chainInRedirect  = "ISTIO_IN_REDIRECT"
	chainOutput      = "ISTIO_OUTPUT"
	chainRedirect    = "ISTIO_REDIRECT"
	chainOutputDNS   = "ISTIO_OUTPUT_DNS"
	chainTProxy      = "ISTIO_TPROXY"
	chainDivert      = "ISTIO_DIVERT"
	chainDrop        = "ISTIO_DROP"
	chainStray       = "ISTIO_STRAY_SYN"    // what nat would not see
	chainProxy       = "ISTIO_PROXY"        // what the proxy itself sends
	chainOwnerGroups = "ISTIO_OWNER_GROUPS" // what the captured groups send
)

// Rules is the whole policy. It reads top to bottom, in the order in which a
// packet meets it; the backends only encode it.
func Rules(in Intent) Ruleset {
	b := builder{Intent: in}

	b.dnsZones()

	if b.DropInvalid || b.transparent() {
		b.hook(Mangle, Prerouting)
		b.invalidPackets()
		b.transparentJump()
	}
	b.hook(Mangle, Output)
	b.strayJump()
	b.transparentReturn()
	b.dropChain()
	b.strayChain()
	b.transparentInbound()

	b.inboundHook()
	b.outboundHook()
	b.inbound()
	b.outbound()
	b.proxyTraffic()
	b.dnsQueries()

	b.chain(NAT, chainInRedirect)
	b.add(Match{Protocol: TCP}, Action{Verdict: Redirect, Port: in.InboundPort}, "to the proxy's inbound port")
	b.chain(NAT, chainRedirect)
	b.add(Match{Protocol: TCP}, Action{Verdict: Redirect, Port: in.OutboundPort}, "to the proxy's outbound port")

	return Ruleset{IPv6: in.IPv6, LocalMark: b.localMark(), Chains: b.chains}
}

// invalidPackets are dropped before anything else sees them, if asked for:
// redirected connections would answer them with a reset.
func (b *builder) invalidPackets() {
	if b.DropInvalid {
		b.add(Match{Invalid: true}, Action{Verdict: Jump, Chain: chainDrop}, "INVALID_DROP is set")
	}
}

func (b *builder) dropChain() {
	if b.DropInvalid {
		b.chain(Mangle, chainDrop)
		b.exempt(Match{In: b.excludedInterfaces()}, "excluded interface")
		b.add(Match{}, Action{Verdict: Drop}, "out-of-window packet")
	}
}

// strayJump turns to a pod's own SYN that conntrack takes for part of another
// connection: nat would never see it. A server outside can have it so, by a
// segment to a port that is not captured, which the pod drops silently.
func (b *builder) strayJump() {
	b.add(Match{Protocol: TCP, Begins: true, Invalid: true}, Action{Verdict: Jump, Chain: chainStray}, "begins a connection that nat would not see")
}

// strayChain leaves out what is not captured anyway.
func (b *builder) strayChain() {
	b.chain(Mangle, chainStray)
	b.exempt(Match{Out: b.excludedInterfaces()}, "excluded interface")
	b.exempt(Match{UID: one(b.ProxyUID)}, "sent by the proxy's user")
	b.exempt(Match{GID: one(b.ProxyGID)}, "sent by the proxy's group")
	b.add(Match{}, Action{Verdict: Drop}, "conntrack takes it for part of another connection")
}

func (b *builder) inboundHook() {
	if b.redirectsInbound() || len(b.RerouteInterfaces) > 0 {
		b.hook(NAT, Prerouting)
		b.add(Match{Protocol: TCP}, Action{Verdict: Jump, Chain: chainInbound}, "inbound TCP")
	}
}

func (b *builder) outboundHook() {
	b.hook(NAT, Output)
	b.add(Match{Protocol: TCP}, Action{Verdict: Jump, Chain: chainOutput}, "outbound TCP")
	if b.capturesDNS() {
		b.add(dns(UDP), Action{Verdict: Jump, Chain: chainOutput}, "outbound DNS")
	}
}

func (b *builder) capturesInbound() bool {
	return b.InboundPorts.All || len(b.InboundPorts.Only) > 0
}

func (b *builder) redirectsInbound() bool { return b.capturesInbound() && !b.Transparent }

// inbound is what others send to the pod.
func (b *builder) inbound() {
	if !b.redirectsInbound() && len(b.RerouteInterfaces) == 0 {
		return
	}
	b.chain(NAT, chainInbound)
	b.reroutedInterfaces()
	if b.redirectsInbound() {
		b.exempt(Match{In: b.excludedInterfaces()}, "excluded interface")
		b.inboundPorts(Action{Verdict: Jump, Chain: chainInRedirect})
	}
}

// reroutedInterfaces carry a virtual machine's traffic: what comes in there is
// on its way out.
func (b *builder) reroutedInterfaces() {
	interfaces := b.reroutes()
	if len(interfaces.Values) == 0 {
		return
	}
	toProxy := Action{Verdict: Jump, Chain: chainRedirect}
	b.outboundRanges(Match{In: interfaces}, toProxy, "rerouted interface, captured range")
	b.exempt(Match{In: interfaces}, "rerouted interface, other range")
}

// inboundPorts acts on the ports whose capture is asked for. A list of them
// ignores all excludes.
func (b *builder) inboundPorts(toProxy Action) {
	b.exempt(tcpPorts("", b.TunnelPort), "the proxy's tunnel port")
	if !b.InboundPorts.All {
		b.add(tcpPorts("include_inbound_ports", b.InboundPorts.Only...), toProxy, "included inbound port")
		return
	}
	b.exempt(tcpPorts("exclude_inbound_ports", b.ExcludeInboundPorts...), "excluded inbound port")
	b.add(Match{Protocol: TCP}, toProxy, "every other inbound port")
}

// outbound is what the pod's own processes send.
func (b *builder) outbound() {
	b.chain(NAT, chainOutput)
	b.exempt(Match{Out: b.excludedInterfaces()}, "excluded interface")
	b.exempt(tcpPorts("exclude_outbound_ports", b.ExcludeOutboundPorts...), "excluded outbound port")

	b.exempt(Match{Out: lo, Src: one(ProxySourceIPv4)}, "inbound traffic that the proxy hands on")
	b.exempt(Match{Out: lo, Src: one(ProxySourceIPv6)}, "inbound traffic that the proxy hands on")
	if b.transparent() {
		b.exempt(Match{Out: lo, Mark: markProxy}, "inbound traffic that the proxy hands on")
	}

	// The uid decides before the group: on lo, a process that has only the
	// proxy's group is like any other.
	if b.capturesDNS() {
		b.exempt(dns(TCP).ofUser(b.ProxyUID), "the proxy's own DNS query")
	}
	ownTraffic := Action{Verdict: Goto, Chain: chainProxy}
	b.add(Match{UID: one(b.ProxyUID)}, ownTraffic, "sent by the proxy's user")
	b.dnsJumps()
	if !b.CaptureLoopback {
		b.exempt(Match{Out: lo}, "loopback between the application's processes")
	}
	b.add(Match{GID: one(b.ProxyGID)}, ownTraffic, "sent by the proxy's group")

	if groups := b.ownerGroups(); len(groups.Values) > 0 {
		b.add(Match{GID: groups}, Action{Verdict: Goto, Chain: chainOwnerGroups}, "only these groups are captured")
		b.chain(NAT, chainOwnerGroups)
	} else {
		b.exempt(Match{GID: b.excludedOwnerGroups()}, "excluded group")
	}

	b.exempt(Match{Dst: one(b.LoopbackCIDR)}, "localhost")
	b.exempt(Match{Dst: one(localhostIPv6)}, "localhost")
	for _, family := range []Family{IPv4, IPv6} {
		b.exempt(Match{Dst: ranges("exclude_outbound_ranges", b.ExcludeOutboundRanges, family)}, "excluded outbound range")
	}
	toProxy := Action{Verdict: Jump, Chain: chainRedirect}
	if len(b.IncludeOutboundPorts) > 0 {
		b.add(tcpPorts("include_outbound_ports", b.IncludeOutboundPorts...), toProxy, "included outbound port")
	}
	b.outboundRanges(Match{}, toProxy, "captured outbound range")
}

// outboundRanges acts on the destinations whose capture is asked for.
func (b *builder) outboundRanges(m Match, do Action, why string) {
	if b.OutboundRanges.All {
		b.add(m, do, why)
		return
	}
	for _, family := range []Family{IPv4, IPv6} {
		if m.Dst = ranges("include_outbound_ranges", b.OutboundRanges.Only, family); len(m.Dst.Values) > 0 {
			b.add(m, do, why)
		}
	}
}

// proxyTraffic is what the proxy itself sends. It is never captured, with one
// exception: a service address that leads back to this pod is inbound traffic.
func (b *builder) proxyTraffic() {
	b.chain(NAT, chainProxy)
	b.exempt(Match{Dst: one(b.LoopbackCIDR)}, "the proxy to the application")
	b.exempt(Match{Dst: one(localhostIPv6)}, "the proxy to the application")
	b.exempt(tcpPorts("", b.TunnelPort), "the proxy's tunnel port")
	b.add(Match{Out: lo, Protocol: TCP}, Action{Verdict: Jump, Chain: chainInRedirect}, "the pod calls itself through a service")
}

var localhostIPv6 = netip.MustParsePrefix("::1/128")

// capturesDNS tells whether queries go to the proxy. The port among the
// excluded ones lifts the capture of both protocols.
func (b *builder) capturesDNS() bool {
	return b.CaptureDNS && !slices.Contains(b.ExcludeOutboundPorts, portDNS)
}
