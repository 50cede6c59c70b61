// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"regexp"
	"slices"
	"strings"

	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
)

// nameMissing adds the modules that the kernel lacks to an error, if the output of iptables shows them.
func nameMissing(program, stderr string, err error) error {
	if modules := missingModules(program, stderr); len(modules) > 0 {
		return nfnetlink.Lacks(err, modules...)
	}
	return err
}

// missingModules reads missing modules from the output of iptables. iptables-nft needs nft_compat for all
// extensions. Each legacy table is a module of its family.
func missingModules(program, stderr string) (modules []string) {
	family, _, _ := strings.Cut(program, "tables")
	// The expression is compiled here, because most calls of the plugin do not need it.
	extension := regexp.MustCompile(`Extension (\w+) (?:revision \d+ )?(?:is )?not supported, missing kernel module`)
	table := regexp.MustCompile("initialize (?:\\w+ )?table [`'](\\w+)'(.*)")
	for _, match := range extension.FindAllStringSubmatch(stderr, -1) {
		modules = append(modules, moduleOf(family, match[1]))
	}
	if len(modules) > 0 && strings.Contains(stderr, "(nf_tables)") {
		modules = append(modules, "nft_compat")
	}
	if strings.Contains(stderr, "Failed to initialize nft: Protocol not supported") { // iptables-nft prints this even for --version
		modules = append(modules, "nfnetlink")
	}
	for _, match := range table.FindAllStringSubmatch(stderr, -1) {
		if !strings.Contains(match[2], "memory") && !strings.Contains(match[2], "ermi") { // permission denied, not permitted
			modules = append(modules, family+"table_"+match[1])
		}
	}
	slices.Sort(modules)
	return slices.Compact(modules)
}

// moduleOf returns the module with an extension, as modprobe knows it. Most modules have the name of
// their one extension.
func moduleOf(family, extension string) string {
	switch extension {
	case "DNAT":
		return "xt_nat"
	case "MARK", "CONNMARK":
		return "xt_" + strings.ToLower(extension)
	case "REJECT":
		return family + "t_REJECT"
	case "tcp", "udp":
		return "xt_tcpudp"
	}
	return "xt_" + extension
}
