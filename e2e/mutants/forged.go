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
		name: "file-lease-holds-up-the-end-of-a-pod",
		file: "plugin/podnet/lock.go",
		from: "os.O_RDWR|os.O_CREATE|unix.O_NONBLOCK",
		to:   "os.O_RDWR|os.O_CREATE",
		by:   by(root, "e2e/protocol", "TestReaderHoldsNoLock/lease"),
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
