// SPDX-License-Identifier: Apache-2.0

package main

// updateMutants break which pods are updated, what their rules then follow, and in which order they
// are replaced.
var updateMutants = []mutant{
	{
		name: "pod-that-has-ended-is-updated",
		file: "install/guard/update.go",
		from: "if err == nil && (!runs || ",
		to:   "if err == nil && (runs && !runs || ",
		by:   by(root, "e2e/guard", "TestNotUpdated/ended"),
	},
	{
		name: "update-leads-to-a-port-without-a-proxy",
		file: "install/kernel/update.go",
		from: "if r.Do.Port != 0 && ",
		to:   "if r.Do.Port == 1 && ",
		by:   by(root, "e2e/guard", "TestNotUpdated/no_proxy"),
	},
	{
		name: "update-leads-queries-to-a-port-without-a-proxy",
		file: "install/kernel/update.go",
		from: "r.Match.Protocol != capture.UDP && ",
		to:   "r.Do.Port != in.DNSPort && ",
		by:   by(root, "e2e/guard", "TestNotUpdated/no_proxy_for_DNS"),
	},
	{
		name: "update-leads-ipv6-to-a-listener-of-ipv4",
		file: "install/kernel/update.go",
		from: " && (s.IPv6 || in.IPv6 != capture.Captured)",
		to:   "",
		by:   by(root, "e2e/guard", "TestNotUpdated/no_proxy_by_IPv6"),
	},
	{
		name: "update-forgets-connections",
		file: "install/kernel/update.go",
		from: "rules.HasFence() && !fenced",
		to:   "(rules.HasFence() || !fenced)",
		by:   by(root, "e2e/guard", "TestThousandConnections"),
	},
	{
		name: "updated-pod-has-its-earlier-baseline",
		file: "install/guard/update.go",
		from: "w.baseline, w.repaired = baseline{Stamp: w.desired.stamp, Backend: config.NFTables}, found.Code",
		to:   "w.repaired = found.Code",
		by:   by(root, "e2e/guard", "TestUpdate"),
	},
	{
		name: "legacy-rules-go-before-the-new-ones-come",
		file: "install/kernel/adopt.go",
		from: "\tif err := podnet.PrepareAndApply(ctx, rs, replaceInNFTables); err != nil {\n\t\treturn err\n\t}\n\treturn removeLegacy()\n",
		to:   "\tif err := removeLegacy(); err != nil {\n\t\treturn err\n\t}\n\treturn podnet.PrepareAndApply(ctx, rs, replaceInNFTables)\n",
		by:   by(root, "install/kernel", "TestReplace"),
	},
	{
		name: "value-rules-follows-edits",
		file: "install/guard/desired.go",
		from: "if followable && follows {",
		to:   "if followable {",
		by:   by(root, "e2e/guard", "TestEditedAnnotations"),
	},
	{
		name: "edit-opens-a-fence",
		file: "plugin/capture/pod.go",
		from: " || Fenced(p.Annotations) {",
		to:   " {",
		by:   by(root, "e2e/guard", "TestFencedUpdates"),
	},
	{
		name: "running-pod-follows-every-edit",
		file: "plugin/capture/pod.go",
		from: "range slices.Concat(chosen.exclusions, chosen.inclusions) {",
		to:   "range append(slices.Collect(maps.Keys(edited.Annotations)), slices.Concat(chosen.exclusions, chosen.inclusions)...) {",
		by:   by(unit, "plugin/capture", "TestFollowingIntent"),
	},
	{
		name: "all-pods-of-a-node-are-updated-at-once",
		file: "install/guard/update.go",
		from: "if !g.updates.AllowN(now, 1) {",
		to:   "if !g.updates.AllowN(now, 0) {",
		by:   by(unit, "install/guard", "TestTurns"),
	},
	{
		name: "failing-update-is-repeated-without-a-pause",
		file: "install/guard/update.go",
		from: "w.updates.backOff(now, 1) == 0",
		to:   "w.updates.backOff(now, 1) >= 0",
		by:   by(unit, "install/guard", "TestTurns"),
	},
	{
		name: "pods-with-the-newest-rules-are-updated-first",
		file: "install/guard/update.go",
		from: "cmp.Compare(versionOf(a.baseline.Stamp), versionOf(b.baseline.Stamp))",
		to:   "cmp.Compare(versionOf(b.baseline.Stamp), versionOf(a.baseline.Stamp))",
		by:   by(unit, "install/guard", "TestTurns"),
	},
}
