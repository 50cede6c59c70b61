// SPDX-License-Identifier: Apache-2.0

package main

// guardMutants break what the guard finds, repairs and leaves alone.
var guardMutants = []mutant{
	{
		name: "guard-repairs-another-pods-namespace",
		file: "install/guard/repair.go",
		from: "if netns.Is(w.sandbox.NetNS) {",
		to:   "if netns != nil {",
		by:   by(root, "e2e/guard", "TestNeverAnother/another_namespace_comes_to_its_path"),
	},
	{
		name: "guard-repairs-a-pod-that-has-ended",
		file: "install/guard/repair.go",
		from: "case fault == nil && !runs:",
		to:   "case fault == nil && !runs && e.settings.Policy != InPlace:",
		by:   by(root, "e2e/guard", "TestNeverAnother/the_sandbox_has_ended"),
	},
	{
		name: "pod-that-ends-is-reported-as-uncaptured",
		file: "install/guard/repair.go",
		from: "case fault == nil && !runs:",
		to:   "case fault == nil && !runs && e.settings.Policy != ReportOnly:",
		by:   by(root, "e2e/guard", "TestEndingPods/report"),
	},
	{
		name: "exempt-pod-is-captured-by-the-guard",
		file: "install/guard/examine.go",
		from: `if w.desired.exemption.Cause != "" {`,
		to:   `if w.desired.exemption.Cause == "-" {`,
		by:   by(root, "e2e/guard", "TestExempt"),
	},
	{
		name: "guard-that-may-only-report-repairs",
		file: "install/guard/repair.go",
		from: "case e.settings.Policy == ReportOnly:\n",
		to:   "case e.settings.Policy == ReportOnly:\n\t\treturn e.repair(ctx, netns, w, found)\n",
		by:   by(root, "e2e/guard", "TestStates"),
	},
	{
		name: "uncaptured-pod-stays-so",
		file: "install/guard/repair.go",
		from: "case e.settings.Policy == InPlace:",
		to:   "case e.settings.Policy == Evict:",
		by:   by(root, "e2e/guard", "TestStates"),
	},
	{
		name: "unsent-report-counts-as-received",
		file: "install/guard/guard.go",
		from: "sent := len(g.outbox.queue) == 0",
		to:   "sent := true",
		by:   by(root, "e2e/guard", "TestEarlierPodsReportedOnce"),
	},
	{
		name: "guard-compares-digests-of-an-earlier-release",
		file: "install/kernel/compare.go",
		from: `digestVersion = "4:"`,
		to:   `digestVersion = "2:"`,
		by:   by(root, "e2e/guard", "TestReworded"),
	},
	{
		name: "removed-rules-go-unnoticed",
		file: "install/guard/examine.go",
		from: "case o.Generation == question.Seen:",
		to:   "case question.Seen != 0:",
		by:   by(root, "e2e/guard", "TestForgeries"),
	},
	{
		name: "refused-port-stays-refused-for-days",
		file: "install/guard/repair.go",
		from: "refused > w.refused &&",
		to:   "refused < w.refused &&",
		by:   by(root, "e2e/guard", "TestRefused"),
	},
	{
		name: "guard-that-only-reports-deletes-conntrack-entries",
		file: "install/guard/repair.go",
		from: "e.settings.Policy != ReportOnly {",
		to:   `e.settings.Policy != "" {`,
		by:   by(root, "e2e/guard", "TestRefused"),
	},
	{
		name: "a-repair-loses-connections",
		file: "install/guard/repair.go",
		from: "w.reading = reading{stamp: w.desired.stamp}",
		to:   "w.reading.stamp = w.desired.stamp",
		by:   by(root, "e2e/guard", "TestConnections"),
	},
	{
		name: "entries-are-deleted-in-every-round-after-one-refusal",
		file: "install/guard/repair.go",
		from: "w.refused = refused",
		to:   "w.refused = 0",
		by:   by(root, "e2e/guard", "TestRefused"),
	},
	{
		name: "lost-routes-go-unnoticed-without-a-change-of-rules",
		file: "install/guard/examine.go",
		from: "w.roundsUnchanged%fullCheckEvery != 0",
		to:   "w.roundsUnchanged > 0",
		by:   by(root, "e2e/guard", "TestLost"),
	},
	{
		name: "guard-waits-for-the-lock-of-a-pod",
		file: "install/guard/examine.go",
		from: "e.node.Open(ended, w.sandbox.NetNS)",
		to:   "e.node.Open(ctx, w.sandbox.NetNS)",
		by:   by(root, "e2e/guard", "TestLocked"),
	},
	{
		name: "guard-does-not-name-apparmor",
		file: "install/guard/judge.go",
		from: "podnet.Explained(err).Error()",
		to:   "err.Error()",
		by:   by(root, "e2e/kernels", "TestAppArmor"),
	},
}
