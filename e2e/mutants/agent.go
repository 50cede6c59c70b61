// SPDX-License-Identifier: Apache-2.0

package main

// agentMutants break what the agent does to its node: programs, credentials, the entry
// in the runtime's configuration, the files that carry them.
var agentMutants = []mutant{
	{
		name: "agent-that-the-api-server-refuses-is-ready",
		file: "install/capture-cni-node/run.go",
		from: "cmp.Or(a.refusals.Fault(), answerer.Ready())",
		to:   "answerer.Ready()",
		by:   by(root, "e2e/agent", "TestRefusedAgent"),
	},
	{
		name: "repairs-of-pods-raise-no-alert",
		file: "deploy/chart/alerts.yaml",
		from: "(increase(capture_cni_pod_repairs_total[1h]))",
		to:   "(increase(capture_cni_pod_repairs_repeated_total[1h]))",
		by:   by(unit, "deploy", "TestEveryFaultAlerts"),
	},
	{
		name: "guard-goes-on-with-a-deleted-mount",
		file: "install/capture-cni-node/guard.go",
		from: "o.untilMoved(o.guardMounts()...)",
		to:   "o.untilMoved()",
		by:   by(root, "e2e/guard", "TestDeletedGuardMounts/lock"),
	},
	{
		name: "agent-goes-on-with-a-deleted-mount",
		file: "install/capture-cni-node/run.go",
		from: "untilMoved(mounts...)",
		to:   "untilMoved(mounts[:0]...)",
		by:   by(root, "e2e/agent", "TestDeletedMount/CRI"),
	},
	{
		name: "pipe-holds-the-agent",
		file: "install/host/read.go",
		from: "os.O_RDONLY | unix.O_NONBLOCK",
		to:   "os.O_RDONLY + 0*unix.O_NONBLOCK",
		by:   by(root, "e2e/agent", "TestPipesAreNotOpened"),
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
		name: "second-agent-does-not-name-the-first",
		file: "install/node/owner.go",
		from: "name := nameIn(state, holderName); name",
		to:   "name := nameIn(state, ownerName); name",
		by:   by(root, "e2e/agent", "TestTwoAgents"),
	},
	{
		name: "trial-drop-in-next-to-istio-cni",
		file: "install/node/decide.go",
		from: "if err != nil || mode != n.Mode {",
		to:   "if n.Mode != report.Auto && (err != nil || mode != n.Mode) {",
		by:   by(root, "e2e/agent", "TestAgentBesideIstioCNI"),
	},
	{
		name: "boot-makes-no-entry",
		file: "install/node/bootfiles.go",
		from: "\nC %[1]s/%[2]s",
		to:   "\n# %[1]s/%[2]s",
		by:   by(root, "e2e/agent", "TestMultusChain"),
	},
	{
		name: "boot-makes-the-entry-of-a-former-mode",
		file: "install/node/bootfiles.go",
		from: "\t\treturn n.removeBootFiles()\n",
		to:   "\t\treturn nil\n",
		by:   by(root, "e2e/agent", "TestMultusChainLeft"),
	},
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
}
