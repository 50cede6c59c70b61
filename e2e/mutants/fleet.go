// SPDX-License-Identifier: Apache-2.0

package main

// fleetMutants break what the agents publish of their nodes, and what is read from it.
var fleetMutants = []mutant{
	{
		name: "many-tables-of-a-pod-hide-its-trace",
		file: "install/guard/trace.go",
		from: "traced.Hooks[:min(len(traced.Hooks), report.MaxDoubts)]",
		to:   "traced.Hooks",
		by:   by(root, "e2e/guard", "TestExplainsMuch"),
	},
}
