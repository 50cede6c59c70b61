// SPDX-License-Identifier: Apache-2.0

package main

// pluginMutants break one call of the plugin: the verbs, the lookup of the pod, the
// credentials, the record of the call.
var pluginMutants = []mutant{
	{
		name: "trace-of-the-runtime-is-lost",
		file: "plugin/verbs/recorder.go",
		from: `os.Getenv("TRACEPARENT")`,
		to:   `os.Getenv("traceparent")`,
		by:   by(root, "e2e/protocol", "TestTrace"),
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
		name: "lock-takes-all-time-of-a-del",
		file: "plugin/verbs/verbs.go",
		from: "context.WithTimeout(ctx, delTimeout/2)",
		to:   "context.WithTimeout(ctx, delTimeout)",
		by:   by(root, "e2e/protocol", "TestLockOutlivesDEL"),
	},
	{
		name: "author-of-a-network-sends-requests-as-root",
		file: "plugin/capture-cni-lookup/main.go",
		from: `command := os.Getenv("CNI_COMMAND"); command != ""`,
		to:   `command := os.Getenv("CNI_COMMAND"); command == "DEL"`,
		by:   by(root, "e2e/protocol", "TestLookupIsNoPlugin"),
	},
	{
		name: "lookup-reads-credentials-anywhere",
		file: "plugin/capture-cni-lookup/main.go",
		from: "if err != nil && request.Version == capture.PodVersion {",
		to:   "if err != nil && request.Version != capture.PodVersion {",
		by:   by(root, "e2e/protocol", "TestLookupDirectories"),
	},
	{
		name: "check-knows-the-configured-backend-alone",
		file: "plugin/podnet/observe.go",
		from: "cmp.Or(o.Backend, asked)",
		to:   "cmp.Or(asked, o.Backend)",
		by:   by(root, "e2e/protocol", "TestBackendChanged"),
	},
	{
		name: "plugin-does-not-name-apparmor",
		file: "plugin/verbs/errors.go",
		from: "text := podnet.Explained(f).Error()",
		to:   "text := f.Error()",
		by:   by(root, "e2e/kernels", "TestAppArmor"),
	},
}
