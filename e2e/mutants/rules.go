// SPDX-License-Identifier: Apache-2.0

package main

// ruleMutants break what plugin/capture decides: which pods are captured, and by which
// rules.
var ruleMutants = []mutant{
	{
		name: "outbound-traffic-is-uncaptured",
		file: "plugin/capture/istioflow.go",
		from: "\tf.outboundRanges(in, Match{}, \"captured outbound range\")\n",
		to:   "",
		by:   by(root, "e2e/traffic", "TestOracleScenarios/defaults"),
	},
	{
		name: "inbound-traffic-is-uncaptured",
		file: "plugin/capture/istioflow.go",
		from: "\tf.add(Match{Protocol: TCP}, toInbound, \"every other inbound port\")\n",
		to:   "",
		by:   by(root, "e2e/traffic", "TestOracleScenarios/defaults"),
	},
	{
		name: "proxys-own-traffic-loops",
		file: "plugin/capture/istioflow.go",
		from: "\tf.add(Match{UID: one(in.ProxyUID)}, gotoChain(chainProxy), \"sent by the proxy's user\")\n",
		to:   "",
		by:   by(root, "e2e/traffic", "TestOracleScenarios/defaults"),
	},
	{
		name: "excluded-port-is-captured",
		file: "plugin/capture/istioflow.go",
		from: "\tf.exempt(tcpPorts(\"exclude_outbound_ports\", in.ExcludeOutboundPorts...), \"excluded outbound port\")\n",
		to:   "",
		by:   by(root, "e2e/traffic", "TestOracleScenarios/the_last_ports_there_are"),
	},
	{
		name: "excluded-interface-is-captured",
		file: "plugin/capture/istioflow.go",
		from: "\t\tf.exempt(Match{In: in.excludedInterfaces()}, \"excluded interface\")\n\t\tf.inboundPorts(",
		to:   "\t\tf.inboundPorts(",
		by:   by(root, "e2e/traffic", "TestOracleScenarios/excluded_interfaces"),
	},
	{
		name: "a-querys-answer-is-in-its-zone",
		file: "plugin/nfnetlink/messages.go",
		from: "\t\tb.Bytes(unix.NFTA_CT_DIRECTION, []byte{byte(ct.Direction)})\n",
		to:   "",
		by:   by(root, "e2e/traffic", "TestPort53IsAlsoAClient/nftables"),
	},
	{
		name: "a-servers-answer-is-taken-for-a-query",
		file: "plugin/iptables/encode.go",
		from: "-j CT --zone-orig %d",
		to:   "-j CT --zone %d",
		by:   by(root, "e2e/traffic", "TestPort53IsAlsoAClient/iptables-legacy"),
	},
	{
		name: "dns-by-ipv6-passes-where-tcp-is-refused",
		file: "plugin/capture/refuse.go",
		from: "return b.IPv6 == Refused && b.leadsQueries(Redirect, Translate) }",
		to:   "return b.IPv6 == Refused && b.leadsQueries(Redirect, Translate) && b.Transparent }",
		by:   by(root, "e2e/traffic", "TestIPv6Refused/DNS"),
	},
	{
		name: "each-legacy-table-has-a-limit-of-its-own",
		file: "plugin/xtables/xtables.go",
		from: "left -= len(entries)",
		to:   "left -= 0",
		by:   by(root, "plugin/netfilter", "TestLimits/legacy"),
	},
	{
		name: "proxys-dns-query-loops",
		file: "plugin/capture/istioflow.go",
		from: "\tf.chain(chainOutputDNS)\n\tf.add(Match{GID: one(in.ProxyGID)}, gotoChain(chainProxy), \"sent by the proxy's group\")\n",
		to:   "\tf.chain(chainOutputDNS)\n",
		by:   by(root, "e2e/traffic", "TestOracleScenarios/DNS"),
	},
	{
		name: "connection-to-an-ended-proxy-reaches-the-application",
		file: "plugin/capture/tproxy.go",
		from: "b.add(Match{Protocol: TCP}, Action{Verdict: Drop}, \"the proxy does not listen\")",
		to:   "b.exempt(Match{}, \"the proxy does not listen\")",
		by:   by(root, "e2e/traffic", "TestNoProxyNoConnection"),
	},
	{
		name: "invalid-packets-of-an-excluded-interface-are-dropped",
		file: "plugin/capture/rules.go",
		from: "\t\tb.exempt(Match{In: b.excludedInterfaces()}, \"excluded interface\")\n\t\tb.add(Match{}, Action{Verdict: Drop}, \"out-of-window packet\")",
		to:   "\t\tb.add(Match{}, Action{Verdict: Drop}, \"out-of-window packet\")",
		by:   by(root, "e2e/traffic", "TestInvalidDropOnExcludedInterface"),
	},
	{
		name: "crafted-segment-opens-a-way-out",
		file: "plugin/capture/refuse.go",
		from: "b.add(Match{Protocol: TCP}, Action{Verdict: Reject}, \"it would bypass the proxy\")",
		to:   "b.exempt(Match{Protocol: TCP, Begins: true}, \"it would bypass the proxy\")",
		by:   by(root, "e2e/search", "TestSequences"),
	},
	{
		name: "init-container-of-the-proxys-group-is-captured",
		file: "plugin/capture/istioflow.go",
		from: "\tf.add(Match{GID: one(in.ProxyGID)}, gotoChain(chainProxy), \"sent by the proxy's group\")\n\n",
		to:   "\n",
		by:   by(root, "e2e/traffic", "TestInitContainers"),
	},
}
