// SPDX-License-Identifier: Apache-2.0

package main

// nodeMutants break what differs from node to node: backends, and nodes that are taken out.
var nodeMutants = []mutant{
	{
		name: "entry-for-a-backend-that-does-not-work",
		file: "install/node/node.go",
		from: "err != nil || withholds {",
		to:   "err != nil && withholds {",
		by:   by(root, "e2e/agent", "TestUntestedBackend"),
	},
	{
		name: "entry-is-lost-on-a-kernel-that-lacks-a-module",
		file: "install/node/placed.go",
		from: "	return !marked, err",
		to:   "	return marked || !marked, err",
		by:   by(root, "e2e/agent", "TestUntestedBackend"),
	},
	{
		name: "kernel-that-lacks-a-module-is-ready",
		file: "install/node/node.go",
		from: "	report.Add(PartBackend, n.Settings.BackendFault())\n	report.Warning",
		to:   "	report.Warning",
		by:   by(root, "e2e/agent", "TestUntestedBackend"),
	},
	{
		name: "choice-changes-within-a-boot",
		file: "install/backend/test.go",
		from: "v.Choice = earlier.Choice",
		to:   "_ = earlier",
		by:   by(root, "e2e/agent", "TestBackend"),
	},
	{
		name: "test-of-another-boot-counts",
		file: "install/backend/verdict.go",
		from: "|| v.Boot != boot {",
		to:   "|| boot == \"\" {",
		by:   by(root, "e2e/agent", "TestBackend"),
	},
	{
		name: "missing-permission-is-a-missing-module",
		file: "install/backend/rights.go",
		from: "if sets[0].Effective&(1<<capability.number) == 0 {",
		to:   "if capability.name == \"\" {",
		by:   by(root, "e2e/agent", "TestBackend"),
	},
	{
		name: "own-programs-tested-for-the-nodes",
		file: "install/backend/test.go",
		from: "podnet.Probe(ctx, root, asked, transparent)",
		to:   "podnet.Probe(ctx, \"\", asked, transparent)",
		by:   by(root, "e2e/agent", "TestProgramsOfNode"),
	},
	{
		name: "check-knows-the-configured-backend-alone",
		file: "plugin/verbs/check.go",
		from: "cmp.Or(state.Backend, p.backend)",
		to:   "cmp.Or(p.backend, state.Backend)",
		by:   by(root, "e2e/protocol", "TestBackendChanged"),
	},
	{
		name: "pods-of-another-backend-are-unknown",
		file: "install/guard/examine.go",
		from: "case known && lacksPrograms(",
		to:   "case !known && lacksPrograms(",
		by:   by(root, "e2e/guard", "TestPodsOfOtherBackend"),
	},
	{
		name: "node-that-waits-for-its-pods-is-not-kept",
		file: "install/keeper/keeper.go",
		from: "report = k.node.Install(ctx, false)",
		to:   "_ = ctx",
		by:   by(root, "e2e/agent", "TestAbsent"),
	},
	{
		name: "node-that-waits-for-its-pods-has-no-answers",
		file: "install/capture-cni-node/run.go",
		from: "[]task{answerer.Serve})...)",
		to:   "nil)...)",
		by:   by(root, "e2e/agent", "TestAbsent"),
	},
	{
		name: "test-of-the-kernel-can-not-be-disabled",
		file: "install/capture-cni-node/options.go",
		from: "if !o.tryKernel {",
		to:   "if false {",
		by:   by(root, "e2e/agent", "TestUntestedBackend"),
	},
	{
		name: "agent-does-not-say-what-it-left",
		file: "install/keeper/keeper.go",
		from: "report.Notes, again = k.node.Left(), resyncInterval",
		to:   "again = resyncInterval",
		by:   by(root, "e2e/agent", "TestAbsent"),
	},
	{
		name: "second-agent-does-not-name-the-first",
		file: "install/node/owner.go",
		from: "name := nameIn(state, holderName); name",
		to:   "name := nameIn(state, ownerName); name",
		by:   by(root, "e2e/agent", "TestTwoAgents"),
	},
}
