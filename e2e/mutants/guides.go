// SPDX-License-Identifier: Apache-2.0

package main

// guideMutants break commands of the operators' guides.
var guideMutants = []mutant{
	{
		name: "guide-sets-a-value-that-the-chart-refuses",
		file: "deploy/guides/install.md",
		from: "--set platform=plain",
		to:   "--set platform=kubeadm",
		by:   by(unit, "deploy", "TestCommands"),
	},
	{
		name: "guide-has-a-flag-that-the-program-lacks",
		file: "deploy/guides/upgrade.md",
		from: "kubectl capture-cni list --outdated",
		to:   "kubectl capture-cni list --older",
		by:   by(unit, "deploy", "TestCommands"),
	},
	{
		name: "guide-deletes-what-the-chart-does-not-make",
		file: "deploy/guides/remove.md",
		from: "delete serviceaccount/capture-cni\n",
		to:   "delete serviceaccount/capture-cni-plugin\n",
		by:   by(unit, "deploy", "TestCommands"),
	},
	{
		name: "guide-for-flux-has-a-value-that-the-chart-refuses",
		file: "deploy/guides/flux.yaml",
		from: "  values:\n    platform: plain",
		to:   "  values:\n    plattform: plain",
		by:   by(unit, "deploy", "TestManifests"),
	},
	{
		name: "guide-has-a-command-that-no-test-runs",
		file: "deploy/guides/install.md",
		from: "kubectl apply -f deploy/capture-cni.yaml",
		to:   "kubectl create -f deploy/capture-cni.yaml",
		by:   by(unit, "e2e/guides", "TestEveryCommandIsRun"),
	},
}
