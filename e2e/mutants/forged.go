// SPDX-License-Identifier: Apache-2.0

package main

// forgedMutants let something pose as what it is not, stall the product or forge what it
// says.
var forgedMutants = []mutant{
	{
		name: "reader-of-the-lock-holds-up-pods",
		file: "plugin/podnet/lock.go",
		from: "found.Type == unix.F_RDLCK",
		to:   "found.Type == unix.F_UNLCK",
		by:   by(root, "e2e/protocol", "TestReaderHoldsNoLock"),
	},
	{
		name: "lock-of-ours-counts-as-foreign",
		file: "plugin/podnet/lock.go",
		from: "found.Type == unix.F_RDLCK",
		to:   "found.Type != unix.F_UNLCK",
		by:   by(root, "e2e/protocol", "TestNamespaceLock"),
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
		name: "pipe-holds-the-agent",
		file: "install/host/read.go",
		from: "os.O_RDONLY | unix.O_NONBLOCK",
		to:   "os.O_RDONLY + 0*unix.O_NONBLOCK",
		by:   by(root, "e2e/agent", "TestPipesAreNotOpened"),
	},
	{
		name: "entry-without-a-plugin",
		file: "install/keeper/keeper.go",
		from: ` || !k.lastReport().IsGood(node.PartBinary)`,
		to:   "",
		by:   by(root, "e2e/agent", "TestNoEntryWithoutPlugin"),
	},
	{
		name: "idle-connections-exhaust-the-agent",
		file: "install/capture-cni-node/server.go",
		from: "maxConnections = 256 ",
		to:   "maxConnections = 256_000 ",
		by:   by(unit, "install/capture-cni-node", "TestConnectionsAreBounded"),
	},
	{
		name: "large-pods-keep-the-agent-from-being-ready",
		file: "install/kube/nodepods.go",
		from: `			options.ResourceVersion, options.ResourceVersionMatch = "", ""
			continue`,
		to: "			continue",
		by: by(unit, "install/kube", "TestLargeList"),
	},
	{
		name: "overloaded-api-server-renews-the-token",
		file: "install/kube/tokens.go",
		from: "return answer.StatusCode == http.StatusUnauthorized",
		to:   "return answer.StatusCode >= http.StatusUnauthorized",
		by:   by(quick, "install/kube", "TestTokens"),
	},
	{
		name: "pod-with-the-labels-of-agents-is-one",
		file: "deploy/fleet/daemonset.go",
		from: " && r.daemonSets[a.owner] != nil",
		to:   "",
		by:   by(quick, "deploy/fleet", "TestPosersAreListed"),
	},
	{
		name: "negative-count-of-one-node-hides-another",
		file: "install/nodestate/limits.go",
		from: " || count < 0",
		to:   "",
		by:   by(quick, "install/nodestate", "TestForged"),
	},
	{
		name: "test-deletes-a-namespace-with-its-labels",
		file: "deploy/capturetest/namespace.go",
		from: " || !nameForm.MatchString(left.GetName())",
		to:   "",
		by:   by(quick, "deploy/capturetest", "TestLeftovers"),
	},
	{
		name: "fault-names-the-uid-of-another-nodes-pod",
		file: "install/pods/answers.go",
		from: `pod.Spec.NodeName != a.node && string(pod.UID) != ref.UID`,
		to:   `pod.Spec.NodeName != a.node && ref.UID == ""`,
		by:   by(quick, "install/pods", "TestOtherNodesPods"),
	},
	{
		name: "file-lease-holds-up-the-end-of-a-pod",
		file: "plugin/podnet/lock.go",
		from: "os.O_RDWR|os.O_CREATE|unix.O_NONBLOCK",
		to:   "os.O_RDWR|os.O_CREATE",
		by:   by(root, "e2e/protocol", "TestReaderHoldsNoLock/lease"),
	},
	{
		name: "lease-of-the-far-future-is-never-stale",
		file: "deploy/fleet/node.go",
		from: "age < -maxAhead || ",
		to:   "",
		by:   by(quick, "deploy/fleet", "TestNodeStates"),
	},
	{
		name: "no-token-where-none-can-be-bound-to-a-node",
		file: "deploy/chart/templates/tokens.yaml",
		from: "object.spec.?boundObjectRef.?kind.orValue('') == ''",
		to:   "!has(object.spec.boundObjectRef)",
		by:   admission("TestAgentPolicies/tokens/Kubernetes_1.30"),
	},
	{
		name: "dormant-table-is-captured",
		file: "install/kernel/compare.go",
		from: "shape.Add(o.Name, o.Content)",
		to:   "shape.Add(o.Name)",
		by:   by(root, "e2e/guard", "TestForgeries/a_table_that_no_packet_meets"),
	},
}
