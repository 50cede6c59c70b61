// SPDX-License-Identifier: Apache-2.0

package main

// badDayMutants break what agent and guard do on bad days: Nodes deleted or renamed,
// clocks that step, directories deleted or restored from a backup.
var badDayMutants = []mutant{
	{
		name: "guard-goes-on-with-a-deleted-mount",
		file: "install/capture-cni-node/guard.go",
		from: "o.untilDeleted(o.guardMounts()...)",
		to:   "o.untilDeleted()",
		by:   by(root, "e2e/guard", "TestDeletedGuardMounts/lock"),
	},
	{
		name: "agent-goes-on-with-a-deleted-mount",
		file: "install/capture-cni-node/run.go",
		from: "untilDeleted(mounts...)",
		to:   "untilDeleted(mounts[:0]...)",
		by:   by(root, "e2e/agent", "TestDeletedMount/CRI"),
	},
	{
		name: "token-of-another-node-is-kept",
		file: "install/credentials/credentials.go",
		from: " && !c.isOfAnotherNode(current)",
		to:   "",
		by:   by(root, "e2e/agent", "TestRenamedNode"),
	},
	{
		name: "deleted-node-gets-an-unbound-token",
		file: "install/kube/tokens.go",
		from: " && !spec.NodeExisted",
		to:   "",
		by:   by(root, "e2e/agent", "TestDeletedNode"),
	},
	{
		name: "node-that-is-not-registered-gets-no-token",
		file: "install/kube/tokens.go",
		from: "isUnknownNode(err) && !spec.NodeExisted",
		to:   "isUnknownNode(err) && spec.NodeExisted",
		by:   by(root, "e2e/agent", "TestNodeNotRegistered"),
	},
	{
		name: "restored-credentials-stay",
		file: "install/host/replace.go",
		from: "err == nil && bytes.Equal(current, content)",
		to:   "err == nil && (bytes.Equal(current, content) || len(current) > 0)",
		by:   by(root, "e2e/agent", "TestRestoredBackup"),
	},
	{
		name: "clock-set-back-stops-the-agent",
		file: "install/keeper/keeper.go",
		from: "k.nextResync = time.Now().Add(k.untilNext())",
		to:   "k.nextResync = time.Now().Add(k.untilNext()).Round(0)",
		by:   by(root, "e2e/agent", "TestClockSteps"),
	},
	{
		name: "init-container-of-the-proxys-group-is-captured",
		file: "plugin/capture/istioflow.go",
		from: "\tf.add(Match{GID: one(in.ProxyGID)}, goOn(chainProxy), \"sent by the proxy's group\")\n\n",
		to:   "\n",
		by:   by(root, "e2e/traffic", "TestInitContainers"),
	},
	{
		name: "token-that-was-found-counts-as-requested",
		file: "install/keeper/keeper.go",
		from: "if current.Token != before {",
		to:   "if current.Token != before {\n\t\tk.metrics.tokensRequested.Inc()",
		by:   by(root, "e2e/agent", "TestRejectedToken"),
	},
}
