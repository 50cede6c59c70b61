// SPDX-License-Identifier: Apache-2.0

package main

// pluginMutants break one call of the plugin: the verbs, the lookup of the pod, the
// credentials, the record of the call.
var pluginMutants = []mutant{
	{
		name: "del-fails-for-bad-input",
		file: "plugin/verbs/call.go",
		from: `case "DEL":`,
		to:   `case "del":`,
		by:   by(root, "e2e/protocol", "TestDel"),
	},
	{
		name: "check-tears-down-pods-while-the-api-is-away",
		file: "plugin/verbs/check.go",
		from: "!isA[lookup.Error](err) && ",
		to:   "(err != nil || !isA[lookup.Error](err)) && ",
		by:   by(root, "e2e/protocol", "TestCheckSparesPods"),
	},
	{
		name: "check-passes-without-rules",
		file: "plugin/verbs/check.go",
		from: "if len(differences) > 0 {",
		to:   "if len(differences) < 0 {",
		by:   by(root, "e2e/protocol", "TestCheckNamesTheDifference"),
	},
	{
		name: "add-succeeds-without-rules",
		file: "plugin/verbs/verbs.go",
		from: "err := p.netns.Apply(ctx, rules, p.backend)",
		to:   "err := error(nil)",
		by:   by(root, "e2e/protocol", "TestChain"),
	},
	{
		name: "stdin-chooses-where-credentials-come-from",
		file: "plugin/trust/trust.go",
		from: "if !slices.Contains(listed, directory) {",
		to:   "if len(listed) > 0 && !slices.Contains(listed, directory) {",
		by:   by(root, "plugin/trust", "TestCheckPaths"),
	},
	{
		name: "stdin-chooses-who-gets-the-record",
		file: "plugin/verbs/recorder.go",
		from: `trust.CheckPath("agentSocket", socket) != nil || `,
		to:   `trust.CheckPath("agentSocket", socket) != nil && socket == "" || `,
		by:   by(root, "plugin/verbs", "TestSend"),
	},
	{
		name: "kubeconfig-sends-another-files-token",
		file: "plugin/capture-cni-lookup/apiclient/kubeconfig.go",
		from: "!filepath.IsLocal(k.relative(file.path))",
		to:   `k.relative(file.path) == ""`,
		by:   by(root, "plugin/capture-cni-lookup/apiclient", "TestLoadKubeconfig"),
	},
	{
		name: "api-server-is-not-verified",
		file: "plugin/capture-cni-lookup/apiclient/kubeconfig.go",
		from: "case cluster.InsecureSkipTLSVerify:",
		to:   `case cluster.InsecureSkipTLSVerify && cluster.Server == "":`,
		by:   by(root, "plugin/capture-cni-lookup/apiclient", "TestLoadKubeconfig"),
	},
	{
		name: "credentials-of-another-user-are-read",
		file: "plugin/trust/trust.go",
		from: "case int(stat.Uid) != os.Geteuid():",
		to:   "case int(stat.Uid) != os.Geteuid() && stat.Gid != 0:",
		by:   by(root, "plugin/trust", "TestReadTrusted"),
	},
	{
		name: "pipe-hangs-the-plugin",
		file: "plugin/trust/trust.go",
		from: "os.O_RDONLY | syscall.O_NONBLOCK",
		to:   "os.O_RDONLY | syscall.O_CLOEXEC",
		by:   by(root, "e2e/protocol", "TestPipeForCredentials"),
	},
	{
		name: "socket-of-another-user-answers-for-the-agent",
		file: "plugin/lookup/agent.go",
		from: "if uid != os.Geteuid() {",
		to:   "if uid < 0 {",
		by:   by(root, "e2e/protocol", "TestImposter"),
	},
	{
		name: "answer-for-another-pod-decides",
		file: "plugin/lookup/message.go",
		from: `case request.Pod.UID != "" && request.Pod.UID != answer.UID:`,
		to:   `case request.Pod.UID == "" && request.Pod.UID != answer.UID:`,
		by:   by(root, "plugin/lookup", "TestAgentFirst/has_another_pod"),
	},
	{
		name: "fields-of-another-release-are-read-as-defaults",
		file: "plugin/lookup/message.go",
		from: "case answer.Version != request.Version:",
		to:   "case answer.Version < request.Version:",
		by:   by(root, "plugin/lookup", "TestAgentFirst/is_of_a_newer_version"),
	},
	{
		name: "hung-agent-hangs-the-add",
		file: "plugin/lookup/attempt.go",
		from: "case <-hedge.C:\n\t\t\taskAPI()",
		to:   "case <-hedge.C:",
		by:   by(root, "plugin/lookup", "TestAgentFirst/does_not_answer"),
	},
	{
		name: "spool-that-others-can-read",
		file: "plugin/record/dir.go",
		from: "fs.ModePerm&^mode) != nil",
		to:   "0) != nil",
		by:   by(unit, "install/received", "TestSpoolIsRootsOwn"),
	},
	{
		name: "record-goes-to-a-socket-that-others-can-write",
		file: "plugin/record/delivery.go",
		from: "trust.CheckOwner(socket, info, 0o077)",
		to:   "trust.CheckOwner(socket, info, 0)",
		by:   by(unit, "install/received", "TestNoAgent"),
	},
	{
		name: "records-fill-the-disk",
		file: "plugin/record/delivery.go",
		from: "if i < len(files)-most || bytes > mostBytes && i < len(files)-1 {",
		to:   "if i < len(files)-most {",
		by:   by(unit, "install/received", "TestSpoolBytes"),
	},
	{
		name: "fields-that-an-earlier-agent-lacks-are-read-as-absent",
		file: "plugin/capture/pod.go",
		from: "if version < 2 {",
		to:   "if version < 1 {",
		by:   by(quick, "plugin/lookup", "TestEarlierVersion"),
	},
}
