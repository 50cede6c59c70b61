// SPDX-License-Identifier: Apache-2.0

package main

// gateMutants break what operators wait for, and check by: status, precheck and test.
var gateMutants = []mutant{
	{
		name: "status-of-a-faulty-fleet-is-0",
		file: "deploy/kubectl-capture_cni/status.go",
		from: "outcome(f.Good(), len(f.Unknown)), o.writeStatus",
		to:   "outcome(len(f.Nodes) > 0, len(f.Unknown)), o.writeStatus",
		by:   by(quick, "deploy/kubectl-capture_cni", "TestStatus"),
	},
	{
		name: "ambient-cluster-passes-the-precheck",
		file: "deploy/precheck/meshes.go",
		from: `c.IstioCNI.Data["AMBIENT_ENABLED"] == "true" {`,
		to:   `c.IstioCNI.Data["AMBIENT_ENABLED"] == "yes" {`,
		by:   by(quick, "deploy/precheck", "TestCheck"),
	},
	{
		name: "precheck-without-permissions-says-nothing",
		file: "deploy/precheck/cluster.go",
		from: "if err != nil {\n\t\tc.Unknown",
		to:   "if err != nil && what == \"\" {\n\t\tc.Unknown",
		by:   by(quick, "deploy/precheck", "TestRead"),
	},
	{
		name: "rollout-that-goes-on-is-good",
		file: "deploy/fleet/fleet.go",
		from: "if !set.Good() {",
		to:   "if set.Desired < 0 {",
		by:   by(quick, "deploy/fleet", "TestDaemonSets"),
	},
	{
		name: "what-is-not-known-is-exit-0",
		file: "deploy/kubectl-capture_cni/main.go",
		from: "case unknown > 0:",
		to:   "case unknown < 0:",
		by:   by(quick, "deploy/kubectl-capture_cni", "TestStatusNotKnown"),
	},
	{
		name: "agent-that-waits-for-its-image-is-ready",
		file: "deploy/fleet/podfault.go",
		from: "return f.in(stopped) || ",
		to:   "return ",
		by:   by(quick, "deploy/fleet", "TestAgentStates"),
	},
	{
		name: "node-with-two-entries-is-ready",
		file: "deploy/fleet/node.go",
		from: "case published.Warning.Reason != \"\":",
		to:   "case false:",
		by:   by(quick, "deploy/fleet", "TestWarned"),
	},
	{
		name: "precheck-installs-next-to-istio-cni",
		file: "deploy/precheck/precheck.go",
		from: "case r.Guide != \"\" || ",
		to:   "case ",
		by:   by(quick, "deploy/precheck", "TestCheck"),
	},
	{
		name: "precheck-believes-labels-of-any-namespace",
		file: "deploy/precheck/installed.go",
		from: "i < 0 || set.Namespace != namespace || !",
		to:   "i < 0 || !",
		by:   by(quick, "deploy/precheck", "TestReadInstalled"),
	},
	{
		name: "precheck-believes-any-config-map-of-an-injector",
		file: "deploy/precheck/cluster.go",
		from: "injects && calls(webhooks, one.Namespace) {",
		to:   "injects && (calls(webhooks, one.Namespace) || true) {",
		by:   by(quick, "deploy/precheck", "TestRead"),
	},
	{
		name: "precheck-believes-daemon-sets-without-pods",
		file: "deploy/precheck/daemonsets.go",
		from: "set.Status.CurrentNumberScheduled > 0 && ",
		to:   "",
		by:   by(quick, "deploy/precheck", "TestCheck"),
	},
	{
		name: "precheck-opens-namespaces-of-others",
		file: "deploy/precheck/network.go",
		from: "if r.namespace != fleet.DefaultNamespace {",
		to:   "if r.namespace == \"\" {",
		by:   by(quick, "deploy/precheck", "TestNamespaceOfOthers"),
	},
	{
		name: "names-become-commands",
		file: "install/terms/command.go",
		from: "strings.Trim(word, shellSafe) != \"\" {",
		to:   "strings.Trim(word, shellSafe+\"; |\") != \"\" {",
		by:   by(quick, "install/terms", "TestCommand"),
	},
	{
		name: "test-begins-while-agents-are-not-ready",
		file: "deploy/capturetest/nodes.go",
		from: "if err := notReady(f); err != nil {",
		to:   "if err := notReady(f); err != nil && len(nodes) == 0 {",
		by:   by(quick, "deploy/capturetest", "TestChoose"),
	},
	{
		name: "wait-ends-before-the-fleet-is-good",
		file: "deploy/kubectl-capture_cni/status.go",
		from: "done = err == nil && f.Good();",
		to:   "done = err == nil;",
		by:   by(quick, "deploy/kubectl-capture_cni", "TestStatusWaits"),
	},
}
