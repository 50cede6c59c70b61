// SPDX-License-Identifier: Apache-2.0

package main

// ruleMutants break what becomes of packets in ways that the goldens of rules can't show, and what a
// trace says about them.
var ruleMutants = []mutant{
	{
		name: "a-servers-answer-is-taken-for-a-query",
		file: "plugin/iptables/encode.go",
		from: "-j CT --zone-orig %d",
		to:   "-j CT --zone %d",
		by:   by(root, "e2e/traffic", "TestPort53IsAlsoAClient/iptables-legacy"),
	},
	{
		name: "each-legacy-table-has-a-limit-of-its-own",
		file: "plugin/xtables/xtables.go",
		from: "left -= len(entries)",
		to:   "left -= 0",
		by:   by(root, "plugin/netfilter", "TestLimits/legacy_rules_of_two_tables"),
	},
	{
		name: "renamed-interface-counts-as-loopback",
		file: "plugin/podnet/observe.go",
		from: "l.name != \"lo\" {",
		to:   "l.name == \"\" {",
		by:   by(root, "e2e/traffic", "TestRenamedLoopback/iptables-nft"),
	},
	{
		name: "pod-without-ipv6-needs-ip6tables",
		file: "plugin/verbs/verbs.go",
		from: "ok && rules.IPv6 == capture.Refused {",
		to:   "ok && rules.IPv6 == capture.Captured {",
		by:   by(root, "e2e/kernels", "TestLacking/modules_of_iptables-legacy"),
	},
	{
		name: "mesh-that-is-off-is-captured",
		file: "plugin/verbs/decide.go",
		from: "known && capture.Meshed(r.annotations, r.input.Meshes())",
		to:   "known && capture.Meshed(r.annotations, config.Meshes())",
		by:   by(root, "e2e/protocol", "TestPodsOutsideTheMesh"),
	},
	{
		name: "guard-repairs-pods-of-a-mesh-that-is-off",
		file: "install/guard/asking.go",
		from: "capture.Meshed(s.Annotations, a.meshes)",
		to:   "capture.Meshed(s.Annotations, config.Meshes())",
		by:   by(root, "e2e/guard", "TestOtherMeshes"),
	},
	{
		name: "untracked-datagrams-count-as-answers",
		file: "plugin/iptables/encode.go",
		from: `add(m.Answer, " --ctdir REPLY")`,
		to:   `add(m.Answer, " --ctstate ESTABLISHED,UNTRACKED")`,
		by:   by(root, "e2e/traffic", "TestFenceUntracked/iptables-legacy"),
	},
	{
		name: "trace-names-another-path-than-the-kernels",
		file: "install/trace/trace.go",
		from: "\t\t\tif t.evaluate(t.rules.Chain(chain.Table, do.Chain)) {\n\t\t\t\treturn true\n\t\t\t}\n",
		to:   "\t\t\tt.evaluate(t.rules.Chain(chain.Table, do.Chain))\n",
		by:   by(root, "e2e/traffic", "TestTrace/nftables"),
	},
	{
		name: "trace-misses-a-chain-that-drops",
		file: "install/kernel/hooks.go",
		from: "return c.drops || len(rules) > 0, err",
		to:   "return len(rules) > 0, err",
		by:   by(root, "e2e/guard", "TestTraceDoubts"),
	},
	{
		name: "trace-takes-the-pods-own-tables-for-foreign",
		file: "install/kernel/hooks.go",
		from: "nfnetlink.ChainName{Family: of.Family, Table: of.Table, Name: iptables.MarkerChain}",
		to:   "nfnetlink.ChainName{Family: of.Family, Table: of.Name, Name: iptables.MarkerChain}",
		by:   by(root, "e2e/guard", "TestTraceOfIPTables/iptables-nft"),
	},
	{
		name: "trace-guesses-the-route",
		file: "install/kernel/path.go",
		from: "&netlink.RouteGetOptions{Mark: p.Mark}",
		to:   "&netlink.RouteGetOptions{}",
		by:   by(root, "e2e/guard", "TestTraces"),
	},
}
