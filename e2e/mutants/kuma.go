// SPDX-License-Identifier: Apache-2.0

package main

// kumaMutants break each step of Kuma's flows.
var kumaMutants = []mutant{
	{
		name: "kuma-exempt-traffic-is-captured",
		file: "plugin/capture/kuma.go",
		from: "\tf.exemptTraffic(in)\n",
		to:   "",
		by:   by(root, "e2e/traffic", "TestKuma/excluded_users"),
	},
	{
		name: "kuma-range-of-users-ends-early",
		file: "plugin/nftables/encode.go",
		from: "compare(expr.CmpOpLte, last)",
		to:   "compare(expr.CmpOpLt, last)",
		by:   by(root, "e2e/traffic", "TestKuma/a_range_of_users"),
	},
	{
		name: "kuma-exempt-server-is-captured",
		file: "plugin/capture/builder.go",
		from: "if m.Dst = ranges(fmt.Sprint(\"exempt_ranges_\", i)",
		to:   "if m.Src = ranges(fmt.Sprint(\"exempt_ranges_\", i)",
		by:   by(root, "e2e/traffic", "TestKuma/excluded_servers"),
	},
	{
		name: "kuma-proxys-queries-loop",
		file: "plugin/capture/kuma.go",
		from: "\t\tf.exempt(own, \"the proxy's own DNS query\")\n",
		to:   "\t\t_ = own\n",
		by:   by(root, "e2e/traffic", "TestKuma/DNS"),
	},
	{
		name: "kuma-queries-pass",
		file: "plugin/capture/kuma.go",
		from: "\t\tf.add(dns(UDP), in.toDNS(), \"DNS over UDP\")\n",
		to:   "",
		by:   by(root, "e2e/traffic", "TestKuma/DNS"),
	},
	{
		name: "kuma-excluded-outbound-port-is-captured",
		file: "plugin/capture/kuma.go",
		from: "\tf.exempt(tcpPorts(\"exclude_outbound_ports\", in.ExcludeOutboundPorts...), \"excluded outbound port\")\n",
		to:   "",
		by:   by(root, "e2e/traffic", "TestKuma/excluded_ports"),
	},
	{
		name: "kuma-proxys-user-loops",
		file: "plugin/capture/kuma.go",
		from: "\tf.add(Match{UID: one(in.ProxyUID)}, gotoChain(chainProxy), \"sent by the proxy's user\")\n",
		to:   "",
		by:   by(root, "e2e/traffic", "TestKuma/defaults"),
	},
	{
		name: "kuma-queries-over-tcp-are-captured",
		file: "plugin/capture/kuma.go",
		from: "if in.CaptureDNS && in.Fence == nil {",
		to:   "if in.CaptureDNS && in.Fence != nil {",
		by:   by(root, "e2e/traffic", "TestKuma/DNS"),
	},
	{
		name: "kuma-loopback-is-captured",
		file: "plugin/capture/kuma.go",
		from: "\tf.exempt(Match{ToLo: true}, \"loopback\")\n",
		to:   "",
		by:   by(root, "e2e/traffic", "TestKuma/defaults"),
	},
	{
		name: "kuma-outbound-passes",
		file: "plugin/capture/kuma.go",
		from: "toOutbound, \"every other destination\")",
		to:   "Action{Verdict: Return}, \"every other destination\")",
		by:   by(root, "e2e/traffic", "TestKuma/defaults"),
	},
	{
		name: "kuma-outbound-that-is-off-is-captured",
		file: "plugin/capture/kuma.go",
		from: "\tif in.OutboundPort == 0 {\n",
		to:   "\tif in.OutboundPort == 1 {\n",
		by:   by(root, "e2e/traffic", "TestKuma/no_outbound"),
	},
	{
		name: "kuma-excluded-client-is-captured",
		file: "plugin/capture/kuma.go",
		from: "f.exempt(Match{Src: ranges(\"exclude_inbound_ranges\"",
		to:   "f.exempt(Match{Dst: ranges(\"exclude_inbound_ranges\"",
		by:   by(root, "e2e/traffic", "TestKuma/excluded_clients"),
	},
	{
		name: "kuma-inbound-that-is-off-is-captured",
		file: "plugin/capture/kuma.go",
		from: "if !in.capturesInbound() {",
		to:   "if in.DropInvalid {",
		by:   by(root, "e2e/traffic", "TestKuma/no_inbound"),
	},
	{
		name: "kuma-inbound-passes",
		file: "plugin/capture/kuma.go",
		from: "\tf.inboundPorts(in)\n",
		to:   "",
		by:   by(root, "e2e/traffic", "TestKuma/defaults"),
	},
}
