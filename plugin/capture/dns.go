// SPDX-License-Identifier: Apache-2.0

package capture

const portDNS = 53

// zoneQueries is the conntrack zone of captured queries. The application's query, and the query that
// the proxy then sends upstream, can have the same addresses and ports. The zone keeps their conntrack
// entries apart.
const zoneQueries uint16 = 2

// dns returns a match on DNS queries.
func dns(protocol Protocol) Match {
	return Match{Protocol: protocol, DstPort: one(PortRange{portDNS, portDNS})}
}

// dnsZones assigns the zone to the UDP queries that nat captures, before conntrack sees them. No rule
// matches answers or forwarded packets, because SetZone sets the zone of packets from an entry's
// client, and conntrack finds answers by itself. So an answer that a server in the pod sends to port 53
// is not treated as a query.
func (b *builder) dnsZones() {
	if !b.capturesDNS() {
		return
	}
	queries := dns(UDP)
	b.baseChainWithoutIPv6(Raw, Output)
	b.add(queries, Action{Verdict: Jump, Chain: chainOutputDNS}, "outbound DNS")

	b.chain(Raw, chainOutputDNS)
	b.exempt(Match{Out: b.excludedInterfaces()}, "excluded interface")
	b.exempt(Match{UID: one(b.ProxyUID)}, "sent by the proxy's user")
	b.exempt(Match{GID: given(b.ProxyGID)}, "sent by the proxy's group")
	b.exempt(Match{GID: b.excludedOwnerGroups()}, "excluded group")
	queries.GID = b.ownerGroups()
	b.add(queries, Action{Verdict: SetZone, Zone: zoneQueries}, "the application's query")
}
