// SPDX-License-Identifier: Apache-2.0

package main

// fleetMutants break what the agents publish of their nodes, and what is read from it.
var fleetMutants = []mutant{
	{
		name: "lease-of-another-program-is-overwritten",
		file: "install/lease/lease.go",
		from: "case !isOurs(lease):",
		to:   `case !isOurs(lease) && lease.Name == "":`,
		by:   by(quick, "install/lease", "TestForeignLease"),
	},
	{
		name: "lease-is-written-at-each-check",
		file: "install/lease/lease.go",
		from: "if state == w.written && age >= 0 && age < heartbeat {",
		to:   "if state == w.written && age < 0 {",
		by:   by(quick, "install/lease", "TestPace"),
	},
	{
		name: "refused-lease-is-written-every-ten-seconds",
		file: "install/lease/lease.go",
		from: "w.pause = min(max(2*w.pause, interval), maxPause)",
		to:   "w.pause = min(interval, maxPause)",
		by:   by(quick, "install/lease", "TestFailingWrites"),
	},
	{
		name: "hostile-pods-grow-the-lease",
		file: "install/nodestate/nodestate.go",
		from: "if len(document) <= MaxSize || len(p.Named) == 0 {",
		to:   "if len(document) <= 2*MaxSize || len(p.Named) == 0 {",
		by:   by(quick, "install/nodestate", "TestSizeIsBounded"),
	},
	{
		name: "exempt-pods-hide-uncaptured-ones",
		file: "install/nodestate/nodestate.go",
		from: "slices.SortFunc(named, Compare)",
		to:   "slices.SortFunc(named, func(a, b Pod) int { return cmp.Compare(a.Name, b.Name) })",
		by:   by(quick, "install/nodestate", "TestWorstFirst"),
	},
	{
		name: "states-of-a-dead-guard-are-published",
		file: "install/guard/summary.go",
		from: "if time.Since(info.ModTime()) > summaryAge {",
		to:   "if time.Since(info.ModTime()) > 10*summaryAge {",
		by:   by(quick, "install/guard", "TestOldSummary"),
	},
	{
		name: "guard-deletes-its-summary",
		file: "install/guard/store.go",
		from: "runs || file.Name() == summaryFile {",
		to:   "runs || file.Name() == summaryFile+unfinished {",
		by:   by(quick, "install/guard", "TestSummary"),
	},
	{
		name: "lease-of-a-node-is-owned-by-another",
		file: "install/node/token.go",
		from: "if c.Node.Name != node {",
		to:   `if c.Node.Name == "" {`,
		by:   by(quick, "install/node", "TestUIDByToken"),
	},
	{
		name: "dead-node-looks-ready",
		file: "deploy/fleet/judge.go",
		from: "case o.isStale(lease):",
		to:   "case o.isStale(lease) && node.Reported.IsZero():",
		by:   by(quick, "deploy/fleet", "TestNodeStates"),
	},
	{
		name: "state-of-an-earlier-agent-counts",
		file: "deploy/fleet/judge.go",
		from: "*lease.Spec.HolderIdentity != agent.Name:",
		to:   `*lease.Spec.HolderIdentity == "":`,
		by:   by(quick, "deploy/fleet", "TestNodeStates"),
	},
	{
		name: "pod-that-never-starts-is-not-listed",
		file: "deploy/fleet/judge.go",
		from: "now.Sub(pod.scheduled) > startGrace:",
		to:   "now.Sub(pod.scheduled) > 24*startGrace:",
		by:   by(quick, "deploy/fleet", "TestPods"),
	},
	{
		name: "only-the-first-pods-are-listed",
		file: "deploy/fleet/client.go",
		from: `if options.Continue = page.GetContinue(); options.Continue == "" {`,
		to:   `if options.Continue = page.GetContinue(); options.Continue != "-" {`,
		by:   by(quick, "deploy/fleet", "TestLargeFleet"),
	},
	{
		name: "status-of-a-faulty-fleet-is-0",
		file: "deploy/kubectl-capture_cni/status.go",
		from: "if !f.Good() {",
		to:   "if len(f.Nodes) == 0 {",
		by:   by(quick, "deploy/kubectl-capture_cni", "TestStatus"),
	},
	{
		name: "fault-of-a-node-controls-the-terminal",
		file: "deploy/kubectl-capture_cni/table.go",
		from: "if unicode.IsPrint(r) {",
		to:   "if unicode.IsPrint(r) || r == 0x1b {",
		by:   by(quick, "deploy/kubectl-capture_cni", "TestStatus"),
	},
}
