// SPDX-License-Identifier: Apache-2.0

package capture

import "net/netip"

// Chains, as every Istio runbook expects them. The last two are ours: they
// let exemptions stand first instead of in negated matches.
const (
	chainInbound     = "ISTIO_INBOUND"
	chainInRedirect  = "ISTIO_IN_REDIRECT"
	chainOutput      = "ISTIO_OUTPUT"
	chainRedirect    = "ISTIO_REDIRECT"
	chainDrop        = "ISTIO_DROP"
	chainProxy       = "ISTIO_PROXY"        // what the proxy itself sends
	chainOwnerGroups = "ISTIO_OWNER_GROUPS" // what the captured groups send
)

// Rules is the whole policy. It reads top to bottom, in the order in which a
// packet meets it; the backends only encode it.
func Rules(in Intent) Ruleset {
	b := builder{Intent: in}

	b.invalidPackets()

	b.hook(NAT, Prerouting)
	b.reroutedInterfaces()
	b.exempt(Match{In: named("exclude_interfaces", in.ExcludeInterfaces)}, "excluded interface")
	b.inboundJump()

	b.hook(NAT, Output)
	b.exempt(Match{Out: named("exclude_interfaces", in.ExcludeInterfaces)}, "excluded interface")
	b.add(Match{Protocol: TCP}, Action{Verdict: Jump, Chain: chainOutput}, "outbound TCP")

	b.inbound()
	b.outbound()
	b.proxyTraffic()

	b.chain(NAT, chainInRedirect)
	b.add(Match{Protocol: TCP}, Action{Verdict: Redirect, Port: in.InboundPort}, "to the proxy's inbound port")
	b.chain(NAT, chainRedirect)
	b.add(Match{Protocol: TCP}, Action{Verdict: Redirect, Port: in.OutboundPort}, "to the proxy's outbound port")

	return Ruleset{IPv6: in.IPv6, Chains: b.chains}
}

// invalidPackets are dropped before anything else sees them, if asked for:
// redirected connections would answer them with a reset.
func (b *builder) invalidPackets() {
	if !b.DropInvalid {
		return
	}
	b.hook(Mangle, Prerouting)
	b.add(Match{Invalid: true}, Action{Verdict: Jump, Chain: chainDrop}, "INVALID_DROP is set")
	b.chain(Mangle, chainDrop)
	b.add(Match{}, Action{Verdict: Drop}, "out-of-window packet")
}

// reroutedInterfaces carry a virtual machine's traffic: what comes in there is
// on its way out.
func (b *builder) reroutedInterfaces() {
	interfaces := named("reroute_interfaces", b.RerouteInterfaces)
	if len(interfaces.Values) == 0 {
		return
	}
	toProxy := Action{Verdict: Jump, Chain: chainRedirect}
	b.outboundRanges(Match{In: interfaces}, toProxy, "rerouted interface, captured range")
	b.exempt(Match{In: interfaces}, "rerouted interface, other range")
}

func (b *builder) inboundJump() {
	if b.capturesInbound() {
		b.add(Match{Protocol: TCP}, Action{Verdict: Jump, Chain: chainInbound}, "inbound TCP")
	}
}

func (b *builder) capturesInbound() bool {
	return b.InboundPorts.All || len(b.InboundPorts.Only) > 0
}

// inbound is what others send to the pod. A list of ports ignores all excludes.
func (b *builder) inbound() {
	if !b.capturesInbound() {
		return
	}
	b.chain(NAT, chainInbound)
	b.exempt(tcpPorts("", b.TunnelPort), "the proxy's tunnel port")
	toProxy := Action{Verdict: Jump, Chain: chainInRedirect}
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
	b.exempt(tcpPorts("exclude_outbound_ports", b.ExcludeOutboundPorts...), "excluded outbound port")

	lo := one("lo")
	b.exempt(Match{Out: lo, Src: one(ProxySourceIPv4)}, "inbound traffic that the proxy hands on")
	b.exempt(Match{Out: lo, Src: one(ProxySourceIPv6)}, "inbound traffic that the proxy hands on")

	// The uid decides before the group: on lo, a process that has only the
	// proxy's group is like any other.
	ownTraffic := Action{Verdict: Goto, Chain: chainProxy}
	b.add(Match{UID: one(b.ProxyUID)}, ownTraffic, "sent by the proxy's user")
	if !b.CaptureLoopback {
		b.exempt(Match{Out: lo}, "loopback between the application's processes")
	}
	b.add(Match{GID: one(b.ProxyGID)}, ownTraffic, "sent by the proxy's group")

	if groups := named("owner_groups", b.OwnerGroups); len(groups.Values) > 0 {
		b.add(Match{GID: groups}, Action{Verdict: Goto, Chain: chainOwnerGroups}, "only these groups are captured")
		b.chain(NAT, chainOwnerGroups)
	} else {
		b.exempt(Match{GID: named("exclude_owner_groups", b.ExcludeOwnerGroups)}, "excluded group")
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
	b.add(Match{Out: one("lo"), Protocol: TCP}, Action{Verdict: Jump, Chain: chainInRedirect}, "the pod calls itself through a service")
}

var localhostIPv6 = netip.MustParsePrefix("::1/128")
