// SPDX-License-Identifier: Apache-2.0

package main

// agentMutants break what the agent does to its node: programs, credentials, the entry
// in the runtime's configuration, the files that carry them.
var agentMutants = []mutant{
	{
		name: "token-that-all-can-read",
		file: "install/host/replace.go",
		from: "return d.Replace(name, bytes.NewReader(content), 0o600, nil)",
		to:   "return d.Replace(name, bytes.NewReader(content), 0o644, nil)",
		by:   by(quick, "install/credentials", "TestCredentialsArePrivate"),
	},
	{
		name: "entry-comes-before-the-plugin",
		file: "install/node/node.go",
		from: "(report.IsGood(PartBinary) || n.pluginRuns(ctx))",
		to:   "(report.IsGood(PartBinary) || ctx.Err() == nil)",
		by:   by(root, "e2e/agent", "TestTwoDirectories"),
	},
	{
		name: "agent-that-the-api-server-refuses-is-ready",
		file: "install/capture-cni-node/run.go",
		from: "cmp.Or(a.refusals.Fault(), answerer.Ready())",
		to:   "answerer.Ready()",
		by:   by(root, "e2e/agent", "TestRefusedAgent"),
	},
	{
		name: "full-disk-is-shown-nowhere",
		file: "install/node/node.go",
		from: "directory != n.Settings.StateDir {",
		to:   "directory == \"\" {",
		by:   by(root, "e2e/agent", "TestDiskFull"),
	},
	{
		name: "repairs-of-pods-raise-no-alert",
		file: "deploy/chart/alerts.yaml",
		from: "(increase(capture_cni_pod_repairs_total[1h]))",
		to:   "(increase(capture_cni_pod_repairs_repeated_total[1h]))",
		by:   by(quick, "deploy", "TestEveryFaultAlerts"),
	},
	{
		name: "credentials-go-while-a-plugin-needs-them",
		file: "install/node/withdraw.go",
		from: "\tif err == nil {\n\t\terr = n.canary(ctx, ",
		to:   "\tif err != nil {\n\t\terr = n.canary(ctx, ",
		by:   by(root, "e2e/agent", "TestCredentialsStay"),
	},
	{
		name: "second-agent-takes-the-sockets",
		file: "install/keeper/keeper.go",
		from: "if err == nil {\n\t\t\tclose(k.claimed)",
		to:   "if err == nil || lock == nil {\n\t\t\tclose(k.claimed)",
		by:   by(root, "e2e/agent", "TestTwoAgents"),
	},
	{
		name: "node-is-cleaned-under-captured-pods",
		file: "install/node/clean.go",
		from: "if len(pods) > 0 {",
		to:   "if len(pods) < 0 {",
		by:   by(root, "e2e/agent", "TestAbsentAsksTheRuntime"),
	},
	{
		name: "entry-that-is-not-loaded-counts-as-ready",
		file: "install/node/runtime.go",
		from: "if err == nil && !loaded.Calls(conflist.PluginType) {",
		to:   "if err == nil && loaded.Calls(\"\") {",
		by:   by(root, "e2e/agent", "TestReadinessAsksTheRuntime"),
	},
}
