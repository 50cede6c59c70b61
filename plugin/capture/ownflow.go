// SPDX-License-Identifier: Apache-2.0

package capture

import "strings"

// ownOutbound captures nothing that the proxy sends, also to its own pod: a proxy of one
// direction would be led back to itself.
func ownOutbound(in *Intent) (f flow) {
	f.exempt(tcpPorts("exclude_outbound_ports", in.ExcludeOutboundPorts...), "excluded outbound port")
	f.exempt(Match{UID: one(in.ProxyUID)}, "sent by the proxy's user")
	if in.capturesDNS() { // before the step that exempts loopback: a resolver may listen there
		for _, protocol := range []Protocol{TCP, UDP} {
			f.add(dns(protocol), toDNS, "DNS over "+strings.ToUpper(string(protocol)))
		}
	}
	f.exempt(Match{ToLo: true}, "loopback")
	f.excludedRanges(in)
	f.outboundRanges(in, Match{}, "captured outbound range")
	return f
}
