// SPDX-License-Identifier: Apache-2.0

package capture

import "slices"

const portDNS = 53

// zoneQueries is the conntrack zone of captured UDP queries. It separates their entries in conntrack from
// those of the proxy's own queries, which can have the same addresses and ports.
const zoneQueries uint16 = 2

func dns(protocol Protocol) Match {
	return Match{Protocol: protocol, DstPort: one(PortRange{portDNS, portDNS})}
}

// leadsQueries reports whether the outbound flow has a rule for UDP packets with one of the verdicts.
func (b *builder) leadsQueries(verdicts ...Verdict) bool {
	return slices.ContainsFunc(b.outbound, func(c Chain) bool {
		return slices.ContainsFunc(c.Rules, func(r Rule) bool { return r.Match.Protocol == UDP && slices.Contains(verdicts, r.Do.Verdict) })
	})
}

// dnsZones puts the UDP queries that nat redirects into the zone zoneQueries, before conntrack sees
// them. SetZone sets the zone only in the original direction of a connection, so answers need no rule,
// and the answer of a server in the pod to a client's port 53 does not count as a query.
func (b *builder) dnsZones() {
	if !b.leadsQueries(Redirect) { // a translation applies to the proxy's queries, too
		return
	}
	queries := dns(UDP)
	b.baseChainWithoutIPv6(Raw, Output)
	b.add(queries, Action{Verdict: Jump, Chain: chainOutputDNS}, "outbound DNS")

	b.chain(Raw, chainOutputDNS)
	b.exempt(Match{Out: b.excludedInterfaces()}, "excluded interface")
	for _, m := range b.exemptMatches() {
		if m.Protocol != TCP {
			b.exempt(m, "exempt")
		}
	}
	b.exempt(Match{UID: one(b.ProxyUID)}, "sent by the proxy's user")
	b.exempt(Match{GID: given(b.ProxyGID)}, "sent by the proxy's group")
	b.exempt(Match{GID: b.excludedOwnerGroups()}, "excluded group")
	queries.GID = b.ownerGroups()
	b.add(queries, Action{Verdict: SetZone, Zone: zoneQueries}, "the application's query")
}
