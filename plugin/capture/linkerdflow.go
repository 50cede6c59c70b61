// SPDX-License-Identifier: Apache-2.0

package capture

// linkerdInbound has the order of linkerd2-proxy-init.
func linkerdInbound(in *Intent) (f flow) {
	f.exempt(tcpPorts("exclude_inbound_ports", in.ExcludeInboundPorts...), "skipped inbound port")
	for _, family := range []Family{IPv4, IPv6} {
		f.exempt(Match{Src: ranges("exclude_inbound_ranges", in.ExcludeInboundRanges, family)}, "skipped subnet")
	}
	f.add(Match{Protocol: TCP}, toInbound, "every other inbound port")
	return f
}

// linkerdOutbound has the order of linkerd2-proxy-init: nothing on loopback is captured, also
// what the proxy sends to its own pod.
func linkerdOutbound(in *Intent) (f flow) {
	f.exempt(Match{UID: one(in.ProxyUID)}, "sent by the proxy's user")
	f.exempt(Match{GID: given(in.ProxyGID)}, "sent by the proxy's group")
	f.exempt(Match{ToLo: true}, "loopback")
	f.exempt(tcpPorts("exclude_outbound_ports", in.ExcludeOutboundPorts...), "skipped outbound port")
	f.excludedRanges(in)
	f.add(Match{Protocol: TCP}, toOutbound, "every other destination")
	return f
}
