// SPDX-License-Identifier: Apache-2.0

package main

// traceMutants break the evaluator of traces: it then says something else than the
// kernel does.
var traceMutants = []mutant{
	{
		name: "trace-ignores-an-excluded-interface",
		file: "install/trace/packet.go",
		from: "p.hook == capture.Output && slices.Contains(m.Out.Values, p.Interface)",
		to:   "p.hook == capture.Output",
		by:   by(root, "e2e/traffic", "TestTrace/nftables"),
	},
	{
		name: "trace-ignores-the-sending-group",
		file: "install/trace/packet.go",
		from: "sent && slices.Contains(m.GID.Values, owner.GID)",
		to:   "sent",
		by:   by(root, "e2e/traffic", "TestTrace/nftables"),
	},
	{
		name: "trace-ignores-ranges",
		file: "install/trace/packet.go",
		from: "return p.Contains(address) })",
		to:   "return p.IsValid() })",
		by:   by(root, "e2e/traffic", "TestTrace/iptables-nft"),
	},
	{
		name: "trace-ends-before-lo",
		file: "install/trace/trace.go",
		from: "if p.Inbound || t.at.Interface == loopbackName {",
		to:   "if p.Inbound {",
		by:   by(root, "e2e/traffic", "TestTrace/iptables-legacy"),
	},
	{
		name: "trace-translates-a-connection-twice",
		file: "install/trace/trace.go",
		from: "chain.Table == capture.NAT && hook == capture.Prerouting && !t.at.Inbound",
		to:   "chain.Table == capture.Raw && hook == capture.Prerouting && !t.at.Inbound",
		by:   by(root, "e2e/traffic", "TestTrace/nftables"),
	},
	{
		name: "trace-names-another-path-than-the-kernels",
		file: "install/trace/trace.go",
		from: "\t\t\tif t.evaluate(t.rules.Chain(chain.Table, do.Chain)) {\n\t\t\t\treturn true\n\t\t\t}\n",
		to:   "\t\t\tt.evaluate(t.rules.Chain(chain.Table, do.Chain))\n",
		by:   by(root, "e2e/traffic", "TestTrace/nftables"),
	},
	{
		name: "trace-is-sure-behind-another-programs-rules",
		file: "install/guard/trace.go",
		from: `doubts = append(doubts, "the packet meets other rules first: "+hook)`,
		to:   "_ = hook",
		by:   by(root, "e2e/guard", "TestTraceDoubts"),
	},
	{
		name: "trace-is-sure-of-a-drifted-pod",
		file: "install/guard/trace.go",
		from: "\tdefault:\n\t\tdoubts = append(doubts, doubtOf(found))\n",
		to:   "",
		by:   by(root, "e2e/guard", "TestTraceOfOtherPods/drifted"),
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
	{
		name: "trace-takes-a-mapped-address-for-ipv6",
		file: "install/capture-cni-node/packet.go",
		from: "return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())",
		to:   "return a",
		by:   by(root, "e2e/agent", "TestRenderTrace"),
	},
}
