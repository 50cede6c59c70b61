// SPDX-License-Identifier: Apache-2.0

package main

// netfilterMutants break how rules get into a network namespace, and out of it.
var netfilterMutants = []mutant{
	{
		name: "plugin-applies-no-rule",
		file: "plugin/nftables/apply.go",
		from: "\terr := b.Commit(ctx)\n",
		to:   "\terr := ctx.Err()\n",
		by:   by(root, "e2e/protocol", "TestRecorded"),
	},
	{
		name: "nft-takes-ports-of-a-set-for-something-else",
		file: "plugin/nftables/sets.go",
		from: "nftables.TypeInetService,",
		to:   "nftables.TypeEtherType,",
		by:   by(root, "e2e/ages", "TestListedByNFT"),
	},
	{
		name: "refused-transaction-counts-as-committed",
		file: "plugin/nfnetlink/batch.go",
		from: "fault != nil && !slices.Contains(faults, fault)",
		to:   "fault != nil && slices.Contains(faults, fault)",
		by:   by(root, "plugin/netfilter", "TestRefusedByTheKernel"),
	},
	{
		name: "docker-in-docker-is-in-front-of-a-repaired-pods-rules",
		file: "plugin/capture/text.go",
		from: "NAT: -101",
		to:   "NAT: -100",
		by:   by(root, "e2e/traffic", "TestPublishedPort"),
	},
	{
		name: "rules-of-others-are-removed",
		file: "plugin/iptables/remove.go",
		from: "slices.DeleteFunc(slices.Clone(r.chains), func(name string) bool { return !isOurs(name) })",
		to:   "slices.Clone(r.chains)",
		by:   by(root, "e2e/traffic", "TestForeignRules"),
	},
	{
		name: "lost-answer-counts-as-a-failed-repair",
		file: "plugin/nftables/apply.go",
		from: "if readErr == nil && after != nfnetlink.NoTable && after != before {",
		to:   "if readErr == nil && after == nfnetlink.NoTable && after != before {",
		by:   by(root, "install/kernel", "TestLostAnswers"),
	},
	{
		name: "guard-can-not-read-legacy-rules",
		file: "plugin/xtables/xtables.go",
		from: "unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0",
		to:   "unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW",
		by:   by(root, "plugin/netfilter", "TestLegacyRulesWithoutRawSockets"),
	},
	{
		name: "lost-answer-counts-as-a-repair",
		file: "plugin/nftables/apply.go",
		from: "if readErr == nil && after != nfnetlink.NoTable && after != before {",
		to:   "if readErr == nil && after != nfnetlink.NoTable {",
		by:   by(root, "install/kernel", "TestLostAnswers"),
	},
	{
		name: "legacy-rules-need-nftables",
		file: "plugin/nfnetlink/reader.go",
		from: "errors.Is(err, unix.EINVAL) && lacksNFTables(r.ctx)",
		to:   "errors.Is(err, unix.EINVAL) && r.ctx.Err() != nil",
		by:   by(root, "e2e/kernels", "TestLacking/modules_of_iptables-legacy"),
	},
	{
		name: "kernel-without-nfnetlink-is-refused-without-its-name",
		file: "plugin/nfnetlink/missing.go",
		from: `err = Lacks(err, "nfnetlink")`,
		to:   `_ = Lacks(err, "nfnetlink")`,
		by:   by(root, "e2e/kernels", "TestLacking/nfnetlink"),
	},
	{
		name: "legacy-rules-need-ipv6",
		file: "plugin/iptables/apply.go",
		from: "f == capture.IPv6 && ipv6SwitchedOff()",
		to:   "false",
		by:   by(root, "e2e/kernels", "TestLacking/IPv6"),
	},
	{
		name: "missing-module-of-iptables-is-not-named",
		file: "plugin/iptables/programs.go",
		from: "return nil, nameMissing(filepath.Base(path), stderr.String(), err)",
		to:   "return nil, err",
		by:   by(root, "e2e/kernels", "TestLacking/modules_of_iptables-legacy"),
	},
	{
		name: "missing-targets-of-iptables-are-not-named",
		file: "plugin/iptables/missing.go",
		from: `for _, match := range extension.FindAllStringSubmatch(stderr, -1) {`,
		to:   `for _, match := range extension.FindAllStringSubmatch(strings.ToLower(stderr), -1) {`,
		by:   by(root, "e2e/kernels", "TestLacking/modules_of_iptables-legacy"),
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
