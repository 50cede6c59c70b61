// SPDX-License-Identifier: Apache-2.0

package main

// keptMutants break what a repair, a repeated ADD and a DEL restore, keep and leave behind.
var keptMutants = []mutant{
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
		from: "kernel.TryOpen(w.sandbox.NetNS)",
		to:   "podnet.Open(ctx, w.sandbox.NetNS)",
		by:   by(root, "e2e/guard", "TestLocked"),
	},
	{
		name: "outdated-pod-is-never-obstructed",
		file: "install/guard/examine.go",
		from: "case terms.Captured, terms.Changed, terms.Outdated:",
		to:   "case terms.Captured, terms.Changed:",
		by:   by(root, "e2e/guard", "TestObstructedAndMore/outdated"),
	},
	{
		name: "repeated-add-restores-nothing",
		file: "plugin/podnet/apply.go",
		from: "_, err = prepare(rs)",
		to:   "_, err = checkRoutes(rs)",
		by:   by(root, "e2e/guard", "TestRepeatedADDRestores"),
	},
	{
		name: "repair-deletes-entries-of-translated-connections",
		file: "install/kernel/adopt.go",
		from: "return !e.Translated && ",
		to:   "return ",
		by:   by(root, "e2e/guard", "TestProxySpeaksFirst"),
	},
	{
		name: "repair-deletes-entries-of-forwarded-connections",
		file: "install/kernel/adopt.go",
		from: "return a.IsLoopback() ||",
		to:   "return a.IsValid() ||",
		by:   by(root, "e2e/guard", "TestKeptEntries"),
	},
	{
		name: "failed-repair-leaves-its-tracking-table",
		file: "install/kernel/adopt.go",
		from: "return errors.Join(err, disableConntrack(ctx))",
		to:   "return err",
		by:   by(root, "e2e/guard", "TestFailedRepair"),
	},
	{
		name: "del-deletes-a-table-that-others-use",
		file: "plugin/iptables/remove.go",
		from: "r.created.table && gone == len(r.chains)",
		to:   "r.created.table && gone > 0",
		by:   by(root, "plugin/netfilter", "TestTablesThatOthersUse"),
	},
	{
		name: "stamp-is-committed-before-the-rules-of-ipv6",
		file: "plugin/iptables/apply.go",
		from: "{capture.IPv6, capture.IPv4}",
		to:   "{capture.IPv4, capture.IPv6}",
		by:   by(root, "plugin/iptables", "TestOrderOfFamilies"),
	},
}
