// SPDX-License-Identifier: Apache-2.0

package main

// refuseMutants break what becomes of SYNs that nat does not decide about.
var refuseMutants = []mutant{
	{
		name: "conntracks-memory-opens-a-way-out",
		file: "plugin/capture/refuse.go",
		from: "\tb.outbound(policy{Filter, refuse, refuse, refuse})\n",
		to:   "",
		by:   by(root, "e2e/traffic", "TestNoWayOut/nftables"),
	},
	{
		name: "conntracks-memory-opens-a-way-in",
		file: "plugin/capture/refuse.go",
		from: "\tb.inbound(policy{Mangle, refuse, refuse, refuse})\n",
		to:   "",
		by:   by(root, "e2e/traffic", "TestNoWayIn/nftables"),
	},
	{
		name: "forged-syn-opens-a-way-out",
		file: "plugin/capture/refuse.go",
		from: "\tb.add(forged, refuse, \"sent in another host's name\")\n",
		to:   "\t_ = forged\n",
		by:   by(root, "e2e/traffic", "TestNoSimultaneousOpen/nftables"),
	},
	{
		name: "answer-to-the-proxy-leaves-the-pod",
		file: "plugin/capture/tproxy.go",
		from: "b.add(Match{}, Action{Verdict: Drop}, \"past the proxy\")",
		to:   "b.exempt(Match{Mark: 7}, \"past the proxy\")",
		by:   by(root, "e2e/traffic", "TestNoSimultaneousOpen/nftables"),
	},
	{
		name: "repeated-syn-of-a-captured-connection-is-refused",
		file: "plugin/capture/refuse.go",
		from: "\tb.exempt(translated, \"captured\")\n",
		to:   "",
		by:   by(root, "e2e/traffic", "TestRepeatedSYNs/nftables"),
	},
	{
		name: "connection-of-the-pod-to-itself-is-dropped",
		file: "plugin/capture/refuse.go",
		from: "\tb.exempt(Match{FromLo: true}, \"decided in OUTPUT\")\n",
		to:   "",
		by:   by(root, "e2e/traffic", "TestRepeatedSYNs/nftables"),
	},
	{
		name: "syn-cookie-finds-the-application",
		file: "plugin/capture/tproxy.go",
		from: ", ConnMark: markDelivered}",
		to:   "}",
		by:   by(root, "e2e/traffic", "TestCookies/nftables"),
	},
	{
		name: "late-cookie-finds-the-application",
		file: "plugin/capture/tproxy.go",
		from: "Continues: true, Assured: true, ExceptConnMark",
		to:   "Continues: true, ExceptConnMark",
		by:   by(root, "e2e/traffic", "TestLateCookie/nftables"),
	},
	{
		name: "advertised-ipv6-leaves-past-the-proxy",
		file: "plugin/capture/refuse.go",
		from: "unconfirmed.Family, translated.Family = IPv4, IPv4",
		to:   "translated.Family = IPv4",
		by:   by(root, "e2e/traffic", "TestRouterAdvertisement/nftables"),
	},
	{
		name: "advertised-ipv6-reaches-the-application",
		file: "plugin/capture/refuse.go",
		from: "\t\tb.add(Match{Family: IPv6}, refuse, \"the pod has no IPv6 address\")\n",
		to:   "",
		by:   by(root, "e2e/traffic", "TestIPv6Refused/REDIRECT/nftables"),
	},
	{
		name: "renamed-interface-counts-as-loopback",
		file: "plugin/podnet/loopback.go",
		from: "name != loopbackName {",
		to:   "name == \"\" {",
		by:   by(root, "e2e/traffic", "TestRenamedLoopback/iptables-nft"),
	},
	{
		name: "iptables-commits-nat-for-refused-ipv6",
		file: "plugin/capture/family.go",
		from: "\t\tif rule.returnsAll(family) {\n\t\t\tbreak\n\t\t}\n",
		to:   "",
		by:   by(quick, "plugin/capture", "TestGolden"),
	},
	{
		name: "exemption-holds-in-one-of-two-places",
		file: "plugin/capture/rules.go",
		from: "b.exempt(tcpPorts(\"exclude_outbound_ports\", b.ExcludeOutboundPorts...), \"excluded outbound port\")",
		to:   "if p.table == NAT {\n\t\tb.exempt(tcpPorts(\"exclude_outbound_ports\", b.ExcludeOutboundPorts...), \"excluded outbound port\")\n\t}",
		by:   by(quick, "plugin/capture", "TestPolicyHoldsInBothPlaces"),
	},
	{
		name: "search-misses-a-way-out",
		file: "plugin/capture/refuse.go",
		from: "\tb.outbound(policy{Filter, refuse, refuse, refuse})\n",
		to:   "",
		by:   by(root, "e2e/search", "TestSearch"),
	},
	{
		name: "search-misses-a-way-in",
		file: "plugin/capture/refuse.go",
		from: "\tb.inbound(policy{Mangle, refuse, refuse, refuse})\n",
		to:   "",
		by:   by(root, "e2e/search", "TestSearch"),
	},
	{
		name: "search-misses-a-cookie-of-the-application",
		file: "plugin/capture/tproxy.go",
		from: "\tb.add(Match{Protocol: TCP, Continues: true}, deliver, \"a connection that the proxy has, or none\")\n",
		to:   "",
		by:   by(root, "e2e/search", "TestSearch"),
	},
}
