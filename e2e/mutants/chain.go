// SPDX-License-Identifier: Apache-2.0

package main

// chainMutants break the auxiliary chain of Multus.
var chainMutants = []mutant{
	{
		name: "broken-chain-is-overlooked",
		file: "install/entry/chain.go",
		from: "if err != nil && name != ChainedName {",
		to:   "if err != nil && name == ChainedName {",
		by:   by(quick, "install/entry", "TestBrokenChain"),
	},
	{
		name: "multus-without-the-chain-is-overlooked",
		file: "install/node/runtime.go",
		from: "return auxiliaryChainFault(loaded, filepath.Base(n.Settings.NetDir))",
		to:   "_ = auxiliaryChainFault(loaded, filepath.Base(n.Settings.NetDir))\n\t\treturn nil",
		by:   by(quick, "install/node", "TestMultusWithoutTheChain"),
	},
	{
		name: "pods-of-the-cluster-wait-for-a-lookup",
		file: "install/entry/entry.go",
		from: "!ok && mode == terms.MultusChain {",
		to:   "!ok && mode == terms.Multus {",
		by:   by(quick, "install/entry", "TestEntry"),
	},
	{
		name: "star-excludes-every-pod",
		file: "config/input.go",
		from: `isPrefix && prefix != "" && `,
		to:   "isPrefix && ",
		by:   by(quick, "config", "TestExcludesNamespace"),
	},
	{
		name: "prefix-excludes-no-namespace",
		file: "config/input.go",
		from: "strings.HasPrefix(namespace, prefix)",
		to:   "namespace == prefix",
		by:   by(quick, "config", "TestExcludesNamespace"),
	},
	{
		name: "boot-makes-no-entry",
		file: "install/node/bootfiles.go",
		from: "\nC %[1]s/%[2]s",
		to:   "\n# %[1]s/%[2]s",
		by:   by(root, "e2e/agent", "TestMultusChain"),
	},
	{
		name: "boot-makes-the-entry-of-a-removed-plugin",
		file: "install/node/clean.go",
		from: "if err := n.removeBootFiles(); err != nil {",
		to:   "if err := error(nil); err != nil {",
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
		name: "changed-boot-line-is-overlooked",
		file: "install/node/node.go",
		from: "report.Add(PartEntry, n.bootFilesFault(n.Settings.Entry.Text(kubeconfig)))",
		to:   "_ = n.bootFilesFault(nil)",
		by:   by(root, "e2e/agent", "TestMultusChainFaults"),
	},
}
