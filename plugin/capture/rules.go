// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"net/netip"
	"slices"
)

// Chains have the names of Istio's runbooks. Istio has no ISTIO_PROXY and
// ISTIO_OWNER_GROUPS: with them exemptions come first, without negated matches. In
// iptables, a built-in chain has only jumps: a RETURN there would skip other programs'
// rules.
const (
	// ChainPrefix is the prefix of all chains but the built-in ones.
	ChainPrefix = "ISTIO_"

	// ChainRefuse counts the packets that are refused, in tables Mangle and Filter.
	ChainRefuse = "ISTIO_REFUSE"

	chainInbound     = "ISTIO_INBOUND"
	chainInRedirect  = "ISTIO_IN_REDIRECT"
	chainOutput      = "ISTIO_OUTPUT"
	chainRedirect    = "ISTIO_REDIRECT"
	chainOutputDNS   = "ISTIO_OUTPUT_DNS"
	chainTProxy      = "ISTIO_TPROXY"
	chainDeliver     = "ISTIO_DELIVER"   // to the proxy by TPROXY
	chainHandedOn    = "ISTIO_HANDED_ON" // between the proxy and the application, under TPROXY
	chainDrop        = "ISTIO_DROP"
	ChainSYN         = "ISTIO_SYN"          // what begins a connection
	chainProxy       = "ISTIO_PROXY"        // what the proxy itself sends
	chainOwnerGroups = "ISTIO_OWNER_GROUPS" // what the captured groups send
)

// Rules is the whole policy, table by table; the backends only encode it. nat comes last:
// iptables commits table by table, and the stamp in nat proves that the rules are complete.
func Rules(in Intent) Ruleset {
	b := builder{Intent: in}

	b.dnsZones()

	if b.DropInvalid || b.transparent() || b.checksInbound() {
		b.open(Mangle, Prerouting)
		if b.checksInbound() {
			b.check()
		}
		b.leaveIPv6()
		if b.DropInvalid { // nat skips these packets, and the kernel would answer them with a reset
			b.add(Match{Invalid: true}, Action{Verdict: Jump, Chain: chainDrop}, "INVALID_DROP is set")
		}
		if b.transparent() {
			b.add(Match{Protocol: TCP}, Action{Verdict: Jump, Chain: chainInbound}, "inbound TCP")
		}
	}
	if b.transparent() {
		b.hook(Mangle, Output)
		b.add(Match{Protocol: TCP}, Action{Verdict: Jump, Chain: chainOutput}, "outbound TCP")
		b.hook(Mangle, Postrouting)
		b.add(Match{ConnMark: ProxyMark}, Action{Verdict: Jump, Chain: chainHandedOn}, "between the proxy and the application")
	}
	b.inboundSYNs()
	b.dropChain()
	b.transparentInbound()

	b.open(Filter, Output)
	b.check()
	b.outboundSYNs()

	if b.hasInbound() {
		b.hook(NAT, Prerouting)
		b.add(Match{Protocol: TCP}, Action{Verdict: Jump, Chain: chainInbound}, "inbound TCP")
	}
	b.hook(NAT, Output)
	b.add(Match{Protocol: TCP}, Action{Verdict: Jump, Chain: chainOutput}, "outbound TCP")
	if b.capturesDNS() {
		b.add(dns(UDP), Action{Verdict: Jump, Chain: chainOutput}, "outbound DNS")
	}
	toProxy := policy{
		table:    NAT,
		inbound:  Action{Verdict: Jump, Chain: chainInRedirect},
		outbound: Action{Verdict: Jump, Chain: chainRedirect},
		dns:      Action{Verdict: Redirect, Port: in.DNSPort},
	}
	if b.hasInbound() {
		b.chain(NAT, chainInbound)
		b.inbound(toProxy)
	}
	b.chain(NAT, chainOutput)
	b.outbound(toProxy)

	b.chain(NAT, chainInRedirect)
	b.add(Match{Protocol: TCP}, Action{Verdict: Redirect, Port: in.InboundPort}, "to the proxy's inbound port")
	b.chain(NAT, chainRedirect)
	b.add(Match{Protocol: TCP}, Action{Verdict: Redirect, Port: in.OutboundPort}, "to the proxy's outbound port")

	rs := Ruleset{IPv6: in.IPv6, Chains: b.chains}
	if b.transparent() { // the application's replies to the proxy have the client's address as destination
		rs.LocalMark = ProxyMark
	}
	return rs
}

// policy is what becomes of traffic that is captured, in the chains of one table: nat
// redirects it, and refuse.go refuses it where nat does not decide.
type policy struct {
	table                  Table
	inbound, outbound, dns Action
}

func (b *builder) dropChain() {
	if b.DropInvalid {
		b.chain(Mangle, chainDrop)
		b.exempt(Match{In: b.excludedInterfaces()}, "excluded interface")
		b.add(Match{}, Action{Verdict: Drop}, "out-of-window packet")
	}
}

func (b *builder) capturesInbound() bool {
	return b.InboundPorts.All || len(b.InboundPorts.Only) > 0
}

func (b *builder) redirectsInbound() bool { return b.capturesInbound() && !b.Transparent }

// hasInbound reports whether nat decides about what arrives.
func (b *builder) hasInbound() bool { return b.redirectsInbound() || len(b.RerouteInterfaces) > 0 }

// inbound handles what other hosts send to the pod.
func (b *builder) inbound(p policy) {
	b.reroutedInterfaces(p.outbound)
	if b.redirectsInbound() {
		b.exempt(Match{In: b.excludedInterfaces()}, "excluded interface")
		b.inboundPorts(p.inbound)
	}
}

// reroutedInterfaces captures what a virtual machine sends: it arrives on one of the
// pod's interfaces and counts as outbound.
func (b *builder) reroutedInterfaces(captured Action) {
	interfaces := b.reroutes()
	if len(interfaces.Values) == 0 {
		return
	}
	b.outboundRanges(Match{In: interfaces}, captured, "rerouted interface, captured range")
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
func (b *builder) outbound(p policy) {
	b.exempt(Match{Out: b.excludedInterfaces()}, "excluded interface")
	b.exempt(tcpPorts("exclude_outbound_ports", b.ExcludeOutboundPorts...), "excluded outbound port")

	b.exempt(Match{ToLo: true, Src: one(ProxySourceIPv4)}, "inbound traffic that the proxy hands on")
	b.exempt(Match{ToLo: true, Src: one(ProxySourceIPv6)}, "inbound traffic that the proxy hands on")
	if b.transparent() {
		b.exempt(Match{ToLo: true, Mark: ProxyMark}, "inbound traffic that the proxy hands on")
	}

	// The uid comes before the loopback rule and the gid after it: on lo, a process
	// with only the proxy's gid is like any other.
	if b.capturesDNS() {
		b.exempt(dns(TCP).ofUser(b.ProxyUID), "the proxy's own DNS query")
	}
	ownTraffic := Action{Verdict: Goto, Chain: chainProxy}
	b.add(Match{UID: one(b.ProxyUID)}, ownTraffic, "sent by the proxy's user")
	b.dnsJumps(p)
	if !b.CaptureLoopback {
		b.exempt(Match{ToLo: true}, "loopback between the application's processes")
	}
	b.add(Match{GID: one(b.ProxyGID)}, ownTraffic, "sent by the proxy's group")

	if groups := b.ownerGroups(); len(groups.Values) > 0 {
		b.add(Match{GID: groups}, Action{Verdict: Goto, Chain: chainOwnerGroups}, "only these groups are captured")
		b.chain(p.table, chainOwnerGroups)
	} else {
		b.exempt(Match{GID: b.excludedOwnerGroups()}, "excluded group")
	}

	b.exempt(Match{Dst: one(b.LoopbackCIDR)}, "localhost")
	b.exempt(Match{Dst: one(localhostIPv6)}, "localhost")
	for _, family := range []Family{IPv4, IPv6} {
		b.exempt(Match{Dst: ranges("exclude_outbound_ranges", b.ExcludeOutboundRanges, family)}, "excluded outbound range")
	}
	if len(b.IncludeOutboundPorts) > 0 {
		b.add(tcpPorts("include_outbound_ports", b.IncludeOutboundPorts...), p.outbound, "included outbound port")
	}
	b.outboundRanges(Match{}, p.outbound, "captured outbound range")
	b.proxyTraffic(p)
	b.dnsQueries(p)
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
func (b *builder) proxyTraffic(p policy) {
	b.chain(p.table, chainProxy)
	b.exempt(Match{Dst: one(b.LoopbackCIDR)}, "the proxy to the application")
	b.exempt(Match{Dst: one(localhostIPv6)}, "the proxy to the application")
	b.exempt(tcpPorts("", b.TunnelPort), "the proxy's tunnel port")
	b.add(Match{ToLo: true, Protocol: TCP}, p.inbound, "the pod calls itself through a service")
}

var localhostIPv6 = netip.MustParsePrefix("::1/128")

// capturesDNS reports whether DNS queries are redirected to the proxy. An excluded
// outbound port 53 disables this for TCP and UDP.
func (b *builder) capturesDNS() bool {
	return b.CaptureDNS && !slices.Contains(b.ExcludeOutboundPorts, portDNS)
}
