// SPDX-License-Identifier: Apache-2.0

package main

// laterMutants break what the guard makes of changes after a pod's ADD: annotations that
// came later, connections that its rules refused, an address of another family.
var laterMutants = []mutant{
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
		name: "entries-are-deleted-in-every-round-after-one-refusal",
		file: "install/guard/repair.go",
		from: "w.refused = refused",
		to:   "w.refused = 0",
		by:   by(root, "e2e/guard", "TestRefused"),
	},
	{
		name: "open-connections-lose-their-conntrack-entries",
		file: "install/kernel/adopt.go",
		from: "conntrack.Orphans(entries, sockets)",
		to:   "append(entries, conntrack.Orphans(nil, sockets)...)",
		by:   by(root, "e2e/guard", "TestRefused"),
	},
	{
		name: "refusals-by-iptables-are-not-counted",
		file: "install/kernel/kernel.go",
		from: "unix.NFPROTO_IPV6, string(table)",
		to:   `unix.NFPROTO_IPV6, string(table)+"6"`,
		by:   by(root, "install/kernel", "TestRefused"),
	},
	{
		name: "ipv6-that-came-late-is-not-told",
		file: "install/guard/examine.go",
		from: "if capture.StampedIPv6(state.Stamp) == capture.Refused {",
		to:   "if capture.StampedIPv6(state.Stamp) == capture.Captured {",
		by:   by(root, "e2e/guard", "TestLateFamily"),
	},
	{
		name: "ipv6-that-came-late-loosens-the-rules-of-a-repair",
		file: "install/guard/baseline.go",
		from: "return refused && a.Is6()",
		to:   "return refused && !a.IsValid()",
		by:   by(root, "e2e/guard", "TestLateFamily"),
	},
}
