// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"net/netip"
	"slices"
)

// Chains have the names of Istio's runbooks. Istio has no ISTIO_PROXY and
// ISTIO_OWNER_GROUPS: with them exemptions come first, without negated matches. A
// built-in chain has only jumps: a RETURN there would skip other programs' rules.
const (
	// ChainPrefix is the prefix of all chains but the built-in ones.
	ChainPrefix = "ISTIO_"

	chainInbound     = "ISTIO_INBOUND"
	chainInRedirect  = "ISTIO_IN_REDIRECT"
	chainOutput      = "ISTIO_OUTPUT"
	chainRedirect    = "ISTIO_REDIRECT"
	chainOutputDNS   = "ISTIO_OUTPUT_DNS"
	chainTProxy      = "ISTIO_TPROXY"
	chainDivert      = "ISTIO_DIVERT"
	chainDrop        = "ISTIO_DROP"
	chainStray       = "ISTIO_STRAY_SYN"    // SYNs that bypass nat
	chainProxy       = "ISTIO_PROXY"        // what the proxy itself sends
	chainOwnerGroups = "ISTIO_OWNER_GROUPS" // what the captured groups send
)

// Rules is the whole policy, top to bottom in the order in which a packet traverses
// it. The backends only encode it.
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

// invalidPackets drops packets that conntrack calls invalid, if INVALID_DROP is set:
// nat skips them, and the kernel would answer them with a reset.
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

// strayJump matches a SYN of the pod that conntrack assigns to another connection:
// it would bypass nat. A remote server can cause this by sending a segment to a
// port that is not captured, which the pod drops silently.
func (b *builder) strayJump() {
	b.add(Match{Protocol: TCP, Begins: true, Invalid: true}, Action{Verdict: Jump, Chain: chainStray}, "begins a connection that nat would not see")
}

// strayChain exempts what is not captured.
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

// inbound handles what other hosts send to the pod.
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

// reroutedInterfaces captures what a virtual machine sends: it arrives on one of the
// pod's interfaces and counts as outbound.
func (b *builder) reroutedInterfaces() {
	interfaces := b.reroutes()
	if len(interfaces.Values) == 0 {
		return
	}
	toProxy := Action{Verdict: Jump, Chain: chainRedirect}
	b.outboundRanges(Match{In: interfaces}, toProxy, "rerouted interface, captured range")
	b.exempt(Match{In: interfaces}, "rerouted interface, other range")
}

// inboundPorts captures the included ports. A list of them overrides all excludes.
func (b *builder) inboundPorts(toProxy Action) {
	b.exempt(tcpPorts("", b.TunnelPort), "the proxy's tunnel port")
	if !b.InboundPorts.All {
		b.add(tcpPorts("include_inbound_ports", b.InboundPorts.Only...), toProxy, "included inbound port")
		return
	}
	b.exempt(tcpPorts("exclude_inbound_ports", b.ExcludeInboundPorts...), "excluded inbound port")
	b.add(Match{Protocol: TCP}, toProxy, "every other inbound port")
}

// outbound handles what the pod's own processes send.
func (b *builder) outbound() {
	b.chain(NAT, chainOutput)
	b.exempt(Match{Out: b.excludedInterfaces()}, "excluded interface")
	b.exempt(tcpPorts("exclude_outbound_ports", b.ExcludeOutboundPorts...), "excluded outbound port")

	b.exempt(Match{Out: lo, Src: one(ProxySourceIPv4)}, "inbound traffic that the proxy hands on")
	b.exempt(Match{Out: lo, Src: one(ProxySourceIPv6)}, "inbound traffic that the proxy hands on")
	if b.transparent() {
		b.exempt(Match{Out: lo, Mark: ProxyMark}, "inbound traffic that the proxy hands on")
	}

	// The uid comes before the loopback rule and the gid after it: on lo, a process
	// with only the proxy's gid is like any other.
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

// outboundRanges adds the rule for each included range.
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

// proxyTraffic handles what the proxy itself sends. It is not captured, except for
// traffic to a service that is routed back to this pod: that is inbound.
func (b *builder) proxyTraffic() {
	b.chain(NAT, chainProxy)
	b.exempt(Match{Dst: one(b.LoopbackCIDR)}, "the proxy to the application")
	b.exempt(Match{Dst: one(localhostIPv6)}, "the proxy to the application")
	b.exempt(tcpPorts("", b.TunnelPort), "the proxy's tunnel port")
	b.add(Match{Out: lo, Protocol: TCP}, Action{Verdict: Jump, Chain: chainInRedirect}, "the pod calls itself through a service")
}

var localhostIPv6 = netip.MustParsePrefix("::1/128")

// capturesDNS reports whether DNS queries are redirected to the proxy. An excluded
// outbound port 53 disables this for TCP and UDP.
func (b *builder) capturesDNS() bool {
	return b.CaptureDNS && !slices.Contains(b.ExcludeOutboundPorts, portDNS)
}
