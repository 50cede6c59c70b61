// SPDX-License-Identifier: Apache-2.0

package capture

const portDNS = 53

// Conntrack zones. The application's query and the query that the proxy then sends
// upstream can have the same addresses and ports: zones keep their entries apart.
const (
	zoneUpstream uint16 = 1 // between a resolver and a sender that is not captured
	zoneProxy    uint16 = 2 // between the application and the proxy
)

// dns returns a match on queries.
func dns(protocol Protocol) Match {
	return Match{Protocol: protocol, DstPort: one(PortRange{portDNS, portDNS})}
}

// dnsZones assigns a zone to every packet of DNS over UDP, before conntrack sees the
// packet. The first rule that matches assigns it.
func (b *builder) dnsZones() {
	if !b.capturesDNS() {
		return
	}
	answers := Match{Protocol: UDP, SrcPort: one[uint16](portDNS)}
	proxyAnswers := Match{Protocol: UDP, SrcPort: one(b.DNSPort)}
	queries := dns(UDP)
	b.hook(Raw, Prerouting)
	b.add(answers, Action{Verdict: Jump, Chain: chainInbound}, "answers of resolvers")
	b.hook(Raw, Output)
	b.add(proxyAnswers, Action{Verdict: Jump, Chain: chainOutputDNS}, "answers of the proxy")
	b.add(queries, Action{Verdict: Jump, Chain: chainOutputDNS}, "outbound DNS")

	b.chain(Raw, chainInbound)
	b.exempt(Match{In: b.excludedInterfaces()}, "excluded interface")
	upstream := Action{Verdict: SetZone, Zone: zoneUpstream}
	b.add(answers, upstream, "answers of resolvers")

	b.chain(Raw, chainOutputDNS)
	if interfaces := b.excludedInterfaces(); len(interfaces.Values) > 0 {
		// Only queries: the proxy's answer may leave by this interface although the
		// query left by another.
		excluded := queries
		excluded.Out = interfaces
		b.exempt(excluded, "excluded interface")
	}
	proxy := Action{Verdict: SetZone, Zone: zoneProxy}
	b.add(queries.ofUser(b.ProxyUID), upstream, "the proxy's own DNS query")
	if group := given(b.ProxyGID); !group.IsZero() {
		b.add(queries.ofGroups(group), upstream, "the proxy's own DNS query")
	}
	b.add(proxyAnswers.ofUser(b.ProxyUID), proxy, "answers of the proxy")
	if group := given(b.ProxyGID); !group.IsZero() {
		b.add(proxyAnswers.ofGroups(group), proxy, "answers of the proxy")
	}
	if groups := b.ownerGroups(); len(groups.Values) > 0 {
		b.add(queries.ofGroups(groups), proxy, "only these groups are captured")
		b.add(queries, upstream, "every other group")
		return
	}
	if groups := b.excludedOwnerGroups(); len(groups.Values) > 0 {
		b.add(queries.ofGroups(groups), upstream, "excluded group")
	}
	b.add(queries, proxy, "the application's query")
}
