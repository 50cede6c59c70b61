// SPDX-License-Identifier: Apache-2.0

package main

// listMutants break where the agent places its entry, and in which list.
var listMutants = []mutant{
	{
		name: "second-agent-takes-the-sockets",
		file: "install/node/keeper.go",
		from: "return nil\n\t}\n\tclose(k.claimed)",
		to:   "lock = io.NopCloser(nil)\n\t}\n\tclose(k.claimed)",
		by:   by(root, "e2e/agent", "TestTwoAgents"),
	},
	{
		name: "clock-set-back-stops-the-agent",
		file: "install/node/keeper.go",
		from: "k.nextResync = time.Now().Add(k.untilNext())",
		to:   "k.nextResync = time.Now().Add(k.untilNext()).Round(0)",
		by:   by(root, "e2e/agent", "TestClockSteps"),
	},
	{
		name: "token-that-was-found-counts-as-requested",
		file: "install/node/keeper.go",
		from: "if current.Token != before {",
		to:   "if current.Token != before {\n\t\tk.metrics.tokensRequested.Inc()",
		by:   by(root, "e2e/agent", "TestRejectedToken"),
	},
	{
		name: "entry-without-a-plugin",
		file: "install/node/keeper.go",
		from: ` || !k.lastReport().IsGood(PartBinary)`,
		to:   "",
		by:   by(root, "e2e/runtimes", "TestRegressions"),
	},
	{
		name: "node-that-waits-for-its-pods-is-not-kept",
		file: "install/node/steps.go",
		from: "report = k.node.Install(ctx, false)",
		to:   "_ = ctx",
		by:   by(root, "e2e/agent", "TestAbsent"),
	},
	{
		name: "agent-does-not-say-what-it-left",
		file: "install/node/steps.go",
		from: "report.Findings, again = k.node.Left(), resyncInterval",
		to:   "again = resyncInterval",
		by:   by(root, "e2e/agent", "TestAbsent"),
	},
	{
		name: "no-meshed-pod-starts-next-to-istio-cni",
		file: "install/conflist/beside.go",
		from: "!plugin.IsIstioCNI() || allowIstioCNI && !plugin.Ambient",
		to:   "!plugin.IsIstioCNI() || !plugin.Ambient",
		by:   by(unit, "install/node", "TestRefusedBesideIstioCNI"),
	},
	{
		name: "migration-from-ambient-captures-twice",
		file: "install/conflist/beside.go",
		from: "allowIstioCNI && !plugin.Ambient",
		to:   "allowIstioCNI",
		by:   by(unit, "install/node", "TestRefusedBesideIstioCNI"),
	},
	{
		name: "restart-next-to-istio-cni-gives-up-the-entry",
		file: "install/conflist/beside.go",
		from: "standingMode(net, p); found {",
		to:   "standingMode(net, p); found && mode == report.Auto {",
		by:   by(unit, "install/node", "TestEntryStays"),
	},
	{
		name: "mode-change-next-to-istio-cni-captures-twice",
		file: "install/conflist/beside.go",
		from: "\t\tcase kept:\n\t\t\tmode = other.kept\n",
		to:   "",
		by:   by(unit, "install/node", "TestEntryStays"),
	},
}
