// SPDX-License-Identifier: Apache-2.0

package main

// netfilterMutants break how rules get into a network namespace, and out of it.
var netfilterMutants = []mutant{
	{
		name: "rules-of-others-are-removed",
		file: "plugin/iptables/remove.go",
		from: "slices.DeleteFunc(slices.Clone(r.chains), func(name string) bool { return !isOurs(name) })",
		to:   "slices.Clone(r.chains)",
		by:   by(root, "e2e/traffic", "TestForeignRules"),
	},
	{
		name: "guard-can-not-read-legacy-rules",
		file: "plugin/xtables/xtables.go",
		from: "unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0",
		to:   "unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW",
		by:   by(root, "plugin/netfilter", "TestLegacyRulesWithoutRawSockets"),
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
		from: "return nil, nameMissing(filepath.Base(path), string(stderr.content), err)",
		to:   "return nil, err",
		by:   by(root, "e2e/kernels", "TestLacking/modules_of_iptables-legacy"),
	},
	{
		name: "del-deletes-a-table-that-others-use",
		file: "plugin/iptables/remove.go",
		from: "r.created.table && gone == len(r.chains)",
		to:   "r.created.table && gone > 0",
		by:   by(root, "plugin/netfilter", "TestTablesThatOthersUse"),
	},
}
