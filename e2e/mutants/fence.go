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
		from: "b.add(Match{Protocol: TCP}, Action{Verdict: Return}",
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
		name: "exception-opens-every-port-outside",
		file: fenceRules,
		from: "\t\t\to.DstPort, o.Dst = o.ports, o.ranges\n",
		to:   "\t\t\to.Dst = o.ranges\n",
		by:   by(root, "e2e/traffic", "TestFence/nftables/openings"),
	},
	{
		name: "exception-opens-every-address-outside",
		file: fenceRules,
		from: "\t\t\to.DstPort, o.Dst = o.ports, o.ranges\n",
		to:   "\t\t\to.DstPort = o.ports\n",
		by:   by(root, "e2e/traffic", "TestFence/nftables/openings"),
	},
	{
		name: "datagrams-leave-to-where-some-may-come-from",
		file: fenceRules,
		from: "o.Answer, o.Dst = true, o.ranges",
		to:   "o.Dst = o.ranges",
		by:   by(root, "e2e/traffic", "TestFence/nftables/openings"),
	},
	{
		name: "exception-opens-every-port-of-the-pod",
		file: fenceRules,
		from: "o.DstPort, o.Src = o.ports, o.ranges",
		to:   "o.Src = o.ranges",
		by:   by(root, "e2e/traffic", "TestFence/nftables/openings"),
	},
	{
		name: "answer-to-what-died-on-lo-comes-in",
		file: fenceRules,
		from: "\tb.add(Match{ToLo: true, ForeignDst: true, Original: true}, fenced, \"to another host by loopback\")\n",
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
		name: "search-misses-a-datagram-sent-in-the-peers-name",
		file: fenceRules,
		from: "\tb.add(forged, fenced, \"sent in another host's name\")\n",
		to:   "\t_ = forged\n",
		by:   by(root, "e2e/search", "TestSequences"),
	},
}
