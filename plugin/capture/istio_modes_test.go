// SPDX-License-Identifier: Apache-2.0

package capture

import "slices"

func (i istio) capturesDNS() bool { return i.dns && !slices.Contains(split(i.excludeOutbound), "53") }

// zones adds the rules of table raw. Unlike in Istio, excluded interfaces and groups
// are exempt, as in nat.
func (i istio) zones(t istioTables) {
	const queries, answers = "raw ISTIO_OUTPUT_DNS", "raw ISTIO_INBOUND"
	for _, name := range split(i.excludeInterfaces) {
		t.add(queries, "RETURN", isProtocol(UDP), port("53"), to(name))
		t.add(answers, "RETURN", from(name))
	}
	t.add("raw OUTPUT", queries)
	for _, owner := range []condition{user("1337"), group("1337")} {
		t.add(queries, "CT zone 1", isProtocol(UDP), port("53"), owner)
		t.add(queries, "CT zone 2", isProtocol(UDP), sourcePort(15053), owner)
	}
	other := func(conditions ...condition) {
		t.add(queries, "CT zone 1", append(conditions, isProtocol(UDP), port("53"))...)
	}
	if i.onlyGroups != "" {
		other(noneOf(split(i.onlyGroups))...)
	} else {
		for _, id := range split(i.exceptGroups) {
			other(group(id))
		}
	}
	t.add(queries, "CT zone 2", isProtocol(UDP), port("53"))
	t.add("raw PREROUTING", answers)
	t.add(answers, "CT zone 1", isProtocol(UDP), sourcePort(53))
}

// tproxies reports whether inbound traffic is captured by TPROXY.
func (i istio) tproxies() bool { return i.tproxy && i.includeInbound != "" }

// transparent adds the rules of table mangle. Unlike in Istio, the tunnel port is
// exempt, rerouted interfaces are left to nat, replies reach the proxy even if the
// client is behind an excluded interface, and traffic to localhost is not diverted.
func (i istio) transparent(t istioTables, loopback, proxySource string) {
	t.add("mangle PREROUTING", "save mark", tcp, marked(1337))
	for _, name := range split(i.reroute) {
		t.add("mangle PREROUTING", "ACCEPT", from(name))
	}
	t.add("mangle OUTPUT", "restore mark", tcp, connMarked(1337))
	for _, name := range split(i.excludeInterfaces) {
		t.add("mangle PREROUTING", "RETURN", from(name))
		t.add("mangle OUTPUT", "RETURN", to(name))
	}
	t.add("mangle PREROUTING", "mangle ISTIO_INBOUND", tcp)
	t.add("ISTIO_DIVERT", "MARK 1337")
	t.add("ISTIO_DIVERT", "ACCEPT")
	t.add("ISTIO_TPROXY", tproxied(15006), tcp, not(destination(loopback)))

	const inbound = "mangle ISTIO_INBOUND"
	t.add(inbound, "RETURN", tcp, from("lo"), not(marked(1338)), not(marked(1337)))
	t.add(inbound, "RETURN", tcp, from("lo"), source(proxySource))
	t.add(inbound, "RETURN", tcp, marked(1337))
	t.add(inbound, "RETURN", tcp, port("15008"))
	captured := func(conditions ...condition) {
		t.add(inbound, "ISTIO_DIVERT", append(conditions, tcp, established, not(destination(loopback)))...)
		t.add(inbound, "ISTIO_TPROXY", append(conditions, tcp)...)
	}
	if i.includeInbound == "*" {
		for _, p := range append(split(i.excludeInbound), "15020", "15021", "15090") {
			t.add(inbound, "RETURN", tcp, port(p))
		}
		captured()
	} else {
		for _, p := range split(i.includeInbound) {
			captured(port(p))
		}
	}

	t.add("mangle OUTPUT", "RETURN", tcp, to("lo"), marked(1337))
	t.add("mangle OUTPUT", "MARK 1338", tcp, to("lo"), not(destination(loopback)), user("1337"))
	t.add("mangle OUTPUT", "MARK 1338", tcp, to("lo"), not(destination(loopback)), group("1337"))
}
