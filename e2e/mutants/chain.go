// SPDX-License-Identifier: Apache-2.0

package main

// chainMutants break the auxiliary chain of Multus.
var chainMutants = []mutant{
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
