// SPDX-License-Identifier: Apache-2.0

package main

// consulMutants break each step of Consul's flows, and the translation of queries.
var consulMutants = []mutant{
	{
		name: "consul-queries-are-not-translated",
		file: "plugin/capture/consul.go",
		from: "\tf.translate(in)\n\tf.exemptTraffic(in)\n",
		to:   "\tf.exemptTraffic(in)\n",
		by:   by(root, "e2e/traffic", "TestConsul/DNS"),
	},
	{
		name: "consul-exempt-user-is-captured",
		file: "plugin/capture/consul.go",
		from: "\tf.translate(in)\n\tf.exemptTraffic(in)\n",
		to:   "\tf.translate(in)\n",
		by:   by(root, "e2e/traffic", "TestConsul/defaults"),
	},
	{
		name: "consul-exempt-users-queries-pass",
		file: "plugin/capture/consul.go",
		from: "\tf.translate(in)\n\tf.exemptTraffic(in)\n",
		to:   "\tf.exemptTraffic(in)\n\tf.translate(in)\n",
		by:   by(root, "e2e/traffic", "TestConsul/everything"),
	},
	{
		name: "consul-excluded-range-is-captured",
		file: "plugin/capture/consul.go",
		from: "\tf.excludedRanges(in)\n",
		to:   "",
		by:   by(root, "e2e/traffic", "TestConsul/CIDRs"),
	},
	{
		name: "consul-excluded-outbound-port-is-captured",
		file: "plugin/capture/consul.go",
		from: "\tf.exempt(tcpPorts(\"exclude_outbound_ports\", in.ExcludeOutboundPorts...), \"excluded outbound port\")\n",
		to:   "",
		by:   by(root, "e2e/traffic", "TestConsul/ports"),
	},
	{
		name: "consul-proxys-traffic-loops",
		file: "plugin/capture/consul.go",
		from: "\tf.exempt(Match{UID: one(in.ProxyUID)}, \"sent by the proxy's user\")\n",
		to:   "",
		by:   by(root, "e2e/traffic", "TestConsul/defaults"),
	},
	{
		name: "consul-localhost-is-captured",
		file: "plugin/capture/consul.go",
		from: "\tf.exempt(Match{Dst: one(localhostIPv4)}, \"localhost\")\n",
		to:   "",
		by:   by(root, "e2e/traffic", "TestConsul/defaults"),
	},
	{
		name: "consul-loopback-passes",
		file: "plugin/capture/consul.go",
		from: "f.exempt(Match{Dst: one(localhostIPv4)}, \"localhost\")",
		to:   "f.exempt(Match{ToLo: true}, \"localhost\")",
		by:   by(root, "e2e/traffic", "TestConsul/defaults"),
	},
	{
		name: "consul-inbound-passes",
		file: "plugin/capture/consul.go",
		from: "\tf.inboundPorts(in)\n",
		to:   "",
		by:   by(root, "e2e/traffic", "TestConsul/defaults"),
	},
	{
		name: "consul-outbound-passes",
		file: "plugin/capture/consul.go",
		from: "f.add(Match{Protocol: TCP}, toOutbound, \"every other destination\")",
		to:   "f.add(Match{Protocol: TCP}, Action{Verdict: Return}, \"every other destination\")",
		by:   by(root, "e2e/traffic", "TestConsul/defaults"),
	},
	{
		name: "consul-ipv6-of-one-stack-is-captured",
		file: "plugin/capture/consul.go",
		from: "families{dualStack: dualStack,",
		to:   "families{dualStack: true,",
		by:   by(root, "e2e/traffic", "TestConsul/defaults"),
	},
	{
		name: "queries-are-translated-to-another-port",
		file: "plugin/nftables/encode.go",
		from: "nat.RegProtoMin = register + 1",
		to:   "nat.RegProtoMin = 0",
		by:   by(root, "e2e/traffic", "TestConsul/DNS"),
	},
	{
		name: "queries-of-all-servers-need-the-server",
		file: "plugin/capture/flow.go",
		from: "m.Family = FamilyOf(t.To.Addr())",
		to:   "m.Dst = one(localhostIPv4)",
		by:   by(root, "e2e/traffic", "TestConsulQueries/nftables"),
	},
}
