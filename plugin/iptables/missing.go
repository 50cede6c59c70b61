// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"cmp"
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

// missingModules reads missing modules from the output of iptables. Most extensions are modules of the
// same name with the prefix xt_. iptables-nft also needs the module nft_compat for them. Each table of
// iptables-legacy is a module of its family.
func missingModules(program, stderr string) (modules []string) {
	family, _, _ := strings.Cut(program, "tables")
	named := map[string]string{
		"DNAT": "xt_nat", "MARK": "xt_mark", "CONNMARK": "xt_connmark", "REJECT": family + "t_REJECT", "tcp": "xt_tcpudp", "udp": "xt_tcpudp",
		"icmp": "xt_tcpudp", "icmp6": "xt_tcpudp",
	}
	// The expression is compiled here, because most calls of the plugin do not need it.
	extension := regexp.MustCompile(`Extension (\w+) (?:revision \d+ )?(?:is )?not supported, missing kernel module`)
	table := regexp.MustCompile("initialize (?:\\w+ )?table [`'](\\w+)'(.*)")
	for _, match := range extension.FindAllStringSubmatch(stderr, -1) {
		modules = append(modules, cmp.Or(named[match[1]], "xt_"+match[1]))
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
