// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"net/netip"
	"strings"
)

var (
	loopbackIPv4  = netip.MustParsePrefix("127.0.0.0/8")
	localhostIPv6 = netip.MustParsePrefix("::1/128")
)

func (in *Intent) capturesInbound() bool { return in.InboundPorts.All || len(in.InboundPorts.Only) > 0 }

func (in *Intent) redirectsInbound() bool { return in.capturesInbound() && !in.Transparent }

func (in *Intent) usesTPROXY() bool { return in.Transparent && in.capturesInbound() }

// capturesDNS reports whether DNS queries are redirected to the proxy. If outbound port 53 is excluded,
// neither TCP nor UDP queries are.
func (in *Intent) capturesDNS() bool {
	return in.CaptureDNS && !contains(in.ExcludeOutboundPorts, portDNS)
}

func istioInbound(in *Intent) (f flow) {
	// The traffic of a virtual machine in the pod arrives on one of the pod's interfaces, but counts as
	// outbound.
	if interfaces := in.reroutes(); len(interfaces.Values) > 0 {
		f.outboundRanges(in, Match{In: interfaces}, "rerouted interface, captured range")
		f.exempt(Match{In: interfaces}, "rerouted interface, other range")
	}
	if in.redirectsInbound() {
		f.exempt(Match{In: in.excludedInterfaces()}, "excluded interface")
		f.inboundPorts(in)
	}
	return f
}

// inboundPorts adds the rules for inbound ports. If the pod lists included ports, the excluded ports
// have no effect. The proxy's tunnel port is never captured.
func (f *flow) inboundPorts(in *Intent) {
	f.exempt(Match{Protocol: TCP, DstPort: given(PortRange{in.TunnelPort, in.TunnelPort})}, "the proxy's tunnel port")
	if !in.InboundPorts.All {
		f.add(tcpPorts("include_inbound_ports", Ports(in.InboundPorts.Only...)...), toInbound, "included inbound port")
		return
	}
	f.exempt(tcpPorts("exclude_inbound_ports", in.ExcludeInboundPorts...), "excluded inbound port")
	f.add(Match{Protocol: TCP}, toInbound, "every other inbound port")
}

func istioOutbound(in *Intent) (f flow) {
	f.exempt(Match{Out: in.excludedInterfaces()}, "excluded interface")
	f.exempt(tcpPorts("exclude_outbound_ports", in.ExcludeOutboundPorts...), "excluded outbound port")

	f.exempt(Match{ToLo: true, Src: one(ProxySourceIPv4)}, "inbound traffic that the proxy hands on")
	f.exempt(Match{ToLo: true, Src: one(ProxySourceIPv6)}, "inbound traffic that the proxy hands on")
	if in.usesTPROXY() {
		f.exempt(Match{ToLo: true, Mark: ProxyMark}, "inbound traffic that the proxy hands on")
	}

	// The rule for the proxy's uid precedes the rule for loopback, and the rule for the proxy's gid
	// follows it. So unless loopback is captured, a process that has only the proxy's gid is treated on
	// lo like any other process, except for its DNS queries.
	if in.capturesDNS() {
		own := dns(TCP)
		own.UID = one(in.ProxyUID)
		f.exempt(own, "the proxy's own DNS query")
	}
	f.add(Match{UID: one(in.ProxyUID)}, gotoChain(chainProxy), "sent by the proxy's user")
	if in.capturesDNS() { // precedes the rule that exempts loopback, because a resolver may listen there
		for _, protocol := range []Protocol{TCP, UDP} {
			f.add(dns(protocol), gotoChain(chainOutputDNS), "DNS over "+strings.ToUpper(string(protocol)))
		}
	}
	if !in.CaptureLoopback {
		f.exempt(Match{ToLo: true}, "loopback between the application's processes")
	}
	f.add(Match{GID: one(in.ProxyGID)}, gotoChain(chainProxy), "sent by the proxy's group")

	if groups := in.ownerGroups(); len(groups.Values) > 0 {
		f.add(Match{GID: groups}, gotoChain(chainOwnerGroups), "only these groups are captured")
		f.chain(chainOwnerGroups) // contains all rules that follow, until proxyTraffic adds its chain
	} else {
		f.exempt(Match{GID: in.excludedOwnerGroups()}, "excluded group")
	}

	f.exempt(Match{Dst: one(in.LoopbackCIDR)}, "localhost")
	f.exempt(Match{Dst: one(localhostIPv6)}, "localhost")
	f.excludedRanges(in)
	if len(in.IncludeOutboundPorts) > 0 {
		f.add(tcpPorts("include_outbound_ports", Ports(in.IncludeOutboundPorts...)...), toOutbound, "included outbound port")
	}
	f.outboundRanges(in, Match{}, "captured outbound range")
	f.proxyTraffic(in)
	f.dnsQueries(in)
	return f
}

func (f *flow) excludedRanges(in *Intent) {
	for _, family := range []Family{IPv4, IPv6} {
		f.exempt(Match{Dst: ranges("exclude_outbound_ranges", in.ExcludeOutboundRanges, family)}, "excluded outbound range")
	}
}

// outboundRanges adds rules that capture matching packets. If all destinations are included, one rule
// captures all of them, and otherwise a rule for each IP family captures those to the included ranges.
func (f *flow) outboundRanges(in *Intent, m Match, why string) {
	if in.OutboundRanges.All {
		f.add(m, toOutbound, why)
		return
	}
	for _, family := range []Family{IPv4, IPv6} {
		if m.Dst = ranges("include_outbound_ranges", in.OutboundRanges.Only, family); len(m.Dst.Values) > 0 {
			f.add(m, toOutbound, why)
		}
	}
}

// proxyTraffic adds the chain for packets that the proxy itself sends. The chain captures only packets to
// this pod's own addresses, for example through a Service, because they count as inbound. It exempts
// localhost and the tunnel port.
func (f *flow) proxyTraffic(in *Intent) {
	f.chain(chainProxy)
	f.exempt(Match{Dst: one(in.LoopbackCIDR)}, "the proxy to the application")
	f.exempt(Match{Dst: one(localhostIPv6)}, "the proxy to the application")
	f.exempt(Match{Protocol: TCP, DstPort: given(PortRange{in.TunnelPort, in.TunnelPort})}, "the proxy's tunnel port")
	f.add(Match{ToLo: true, Protocol: TCP}, toInbound, "the pod calls itself through a service")
}

// dnsQueries adds the chain that redirects queries, for any resolver, to the proxy.
func (f *flow) dnsQueries(in *Intent) {
	if !in.capturesDNS() {
		return
	}
	f.chain(chainOutputDNS)
	f.add(Match{GID: one(in.ProxyGID)}, gotoChain(chainProxy), "sent by the proxy's group")
	f.exempt(Match{GID: in.excludedOwnerGroups()}, "excluded group")
	for _, protocol := range []Protocol{TCP, UDP} {
		f.add(Match{Protocol: protocol, GID: in.ownerGroups()}, in.toDNS(), "to the proxy's DNS port")
	}
}
