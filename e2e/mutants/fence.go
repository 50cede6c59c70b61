// SPDX-License-Identifier: Apache-2.0

package main

const fenceRules = "plugin/capture/fencerules.go"

// fenceMutants break what the fence refuses, and what it lets through.
var fenceMutants = []mutant{
	{
		name: "datagrams-of-the-application-leave",
		file: fenceRules,
		from: "\tb.add(Match{}, fenced, \"neither captured nor the proxy's\")\n",
		to:   "",
		by:   by(root, "e2e/traffic", "TestFence/nftables/redirect"),
	},
	{
		name: "datagrams-reach-the-application",
		file: fenceRules,
		from: "\tb.add(Match{}, fenced, \"not captured\")\n",
		to:   "",
		by:   by(root, "e2e/traffic", "TestFenceLetsNoAnswerIn/nftables"),
	},
	{
		name: "datagrams-count-as-of-a-judged-connection",
		file: fenceRules,
		from: "b.exempt(Match{Protocol: TCP, Confirmed: true}",
		to:   "b.add(Match{}, Action{Verdict: Return}",
		by:   by(root, "e2e/traffic", "TestFence/nftables/redirect"),
	},
	{
		name: "nothing-that-arrives-is-judged",
		file: fenceRules,
		from: "\tb.jumpToFence(chainFenceIn)\n",
		to:   "",
		by:   by(root, "e2e/traffic", "TestFence/iptables-nft/nothing_captured_inbound"),
	},
	{
		name: "application-pings-outside",
		file: fenceRules,
		from: "\tb.add(Match{}, fenced, \"no error\")\n",
		to:   "",
		by:   by(root, "e2e/traffic", "TestFence/nftables/redirect"),
	},
	{
		name: "exception-opens-every-port",
		file: fenceRules,
		from: "m := Match{Protocol: protocol, DstPort: one(PortRange{o.First, o.Last})}",
		to:   "m := Match{Protocol: protocol}",
		by:   by(root, "e2e/traffic", "TestFence/nftables/openings"),
	},
	{
		name: "exception-opens-every-address-outside",
		file: fenceRules,
		from: "m.Dst = hosts",
		to:   "_ = hosts",
		by:   by(root, "e2e/traffic", "TestFence/nftables/openings"),
	},
	{
		name: "exception-for-uncaptured-ipv6-opens-nothing",
		file: fenceRules,
		from: "if captures && b.IPv6 == Ignored {",
		to:   "if false {",
		by:   by(root, "e2e/traffic", "TestFence/nftables/IPv6_is_not_captured"),
	},
	{
		name: "datagrams-leave-to-where-some-may-come-from",
		file: fenceRules,
		from: "Answer: true, OwnSource: true, Dst",
		to:   "OwnSource: true, Dst",
		by:   by(root, "e2e/traffic", "TestFence/nftables/openings"),
	},
	{
		name: "answer-leaves-in-another-hosts-name",
		file: fenceRules,
		from: "Answer: true, OwnSource: true, Dst",
		to:   "Answer: true, Dst",
		by:   by(root, "e2e/search", "TestSequences"),
	},
	{
		name: "advertised-ipv6-passes-the-fence",
		file: fenceRules,
		from: "\tb.refuseInbound(fenced)\n",
		to:   "",
		by:   by(root, "e2e/traffic", "TestIPv6Refused/fenced/nftables"),
	},
	{
		name: "answer-to-what-died-on-lo-comes-in",
		file: fenceRules,
		from: "\tb.add(Match{ForeignDst: true, Original: true}, fenced, \"to another host by loopback\")\n",
		to:   "",
		by:   by(root, "e2e/traffic", "TestFenceLetsNoAnswerIn/iptables-legacy"),
	},
	{
		name: "datagram-in-the-pods-name-comes-in",
		file: fenceRules,
		from: "\tb.add(Match{Family: IPv6, OwnSource: true}, fenced, \"sent in the pod's name\")\n",
		to:   "",
		by:   by(root, "e2e/traffic", "TestFenceLetsNoAnswerIn/nftables"),
	},
	{
		name: "untracked-datagrams-count-as-answers",
		file: "plugin/iptables/encode.go",
		from: `add(m.Answer, " --ctdir REPLY")`,
		to:   `add(m.Answer, " --ctstate ESTABLISHED,UNTRACKED")`,
		by:   by(root, "e2e/traffic", "TestFenceUntracked/iptables-legacy"),
	},
	{
		name: "search-misses-a-datagram-sent-in-the-peers-name",
		file: fenceRules,
		from: "\tb.add(forged, fenced, \"sent in another host's name\")\n",
		to:   "\t_ = forged\n",
		by:   by(root, "e2e/search", "TestSequences"),
	},
}
