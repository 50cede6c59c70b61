// SPDX-License-Identifier: Apache-2.0

package main

// guardMutants break what the guard finds, repairs and leaves alone.
var guardMutants = []mutant{
	{
		name: "guard-repairs-another-pods-namespace",
		file: "install/guard/repair.go",
		from: "if !netns.Is(w.sandbox.NetNS) {",
		to:   "if netns == nil {",
		by:   by(root, "e2e/guard", "TestNeverAnother/another_namespace_comes_to_its_path"),
	},
	{
		name: "guard-repairs-a-pod-that-has-ended",
		file: "install/guard/examine.go",
		from: "case fault == nil && !runs:",
		to:   "case fault == nil && !runs && e.settings.Policy != InPlace:",
		by:   by(root, "e2e/guard", "TestNeverAnother/the_sandbox_has_ended"),
	},
	{
		name: "pod-that-ends-is-reported-as-uncaptured",
		file: "install/guard/examine.go",
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
		file: "install/guard/examine.go",
		from: "case e.settings.Policy == ReportOnly:\n\t\treturn found\n",
		to:   "case e.settings.Policy == ReportOnly:\n\t\treturn e.repair(ctx, netns, w, found)\n",
		by:   by(root, "e2e/guard", "TestStates"),
	},
	{
		name: "uncaptured-pod-stays-so",
		file: "install/guard/examine.go",
		from: "case e.settings.Policy == InPlace:",
		to:   "case e.settings.Policy == Evict:",
		by:   by(root, "e2e/guard", "TestStates"),
	},
	{
		name: "forged-stamp-is-believed",
		file: "install/guard/baseline.go",
		from: "if b.isKnown() && b.Stamp != state.Stamp {",
		to:   "if b.isKnown() && b.Stamp == \"\" {",
		by:   by(root, "e2e/guard", "TestForgedBeforeTheFirstExamination"),
	},
	{
		name: "outdated-pod-is-reported-by-each-guard",
		file: "install/guard/guard.go",
		from: "return reported || before.State == terms.Outdated && len(g.outbox.queue) == 0",
		to:   "return reported && before.State == terms.Outdated",
		by:   by(root, "e2e/guard", "TestEarlierPods"),
	},
	{
		name: "unsent-report-counts-as-received",
		file: "install/guard/guard.go",
		from: "return reported || before.State == terms.Outdated && len(g.outbox.queue) == 0",
		to:   "return reported || before.State == terms.Outdated",
		by:   by(root, "e2e/guard", "TestEarlierPodsReportedOnce"),
	},
	{
		name: "chain-with-istios-name-hides-missing-rules",
		file: "install/guard/examine.go",
		from: `case state.Backend == "" && state.Foreign != "" && !known:`,
		to:   `case state.Backend == "" && state.Foreign != "":`,
		by:   by(root, "e2e/guard", "TestForgeries"),
	},
	{
		name: "table-in-front-of-ours-goes-unnoticed",
		file: "install/guard/examine.go",
		from: "found = checkObstruction(ctx, netns, found)",
		to:   "found.Reason = strings.TrimSpace(found.Reason)",
		by:   by(root, "e2e/guard", "TestObstructed"),
	},
	{
		name: "removed-rules-go-unnoticed",
		file: "install/guard/examine.go",
		from: "now := fingerprint{generation, w.desired.stamp, w.desired.changed}",
		to:   "now := fingerprint{min(generation, 1), w.desired.stamp, w.desired.changed}",
		by:   by(root, "e2e/guard", "TestForgeries"),
	},
	{
		name: "baseline-that-others-can-write-is-believed",
		file: "install/guard/store.go",
		from: "const maxMode = 0o755",
		to:   "const maxMode = 0o777",
		by:   by(root, "install/guard", "TestStoreRefuses"),
	},
}
