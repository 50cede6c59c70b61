// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"slices"

	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/xtables"
)

// legacyNAT is the priority of nat before routing and at output, in both variants of iptables.
const legacyNAT = -100

// lastOfOurs returns the priority of the last of our chains that captures packets. That is nftables'
// chain for outgoing packets in nat or, if there is none, nat in iptables. The priority of the former
// differs between versions of the rules.
func lastOfOurs(chains []baseChain) int32 {
	for _, chain := range chains {
		if chain.isOurs() && chain.Name == capture.NFTChain(capture.NAT, string(capture.Output)) {
			return chain.hook.priority
		}
	}
	return legacyNAT
}

// legacyTablesInFront returns the tables of iptables-legacy whose built-in chains get packets at the
// priority last or before it.
func legacyTablesInFront(last int32) []capture.Table {
	tables := []capture.Table{capture.Raw, capture.Mangle}
	if last >= legacyNAT {
		tables = append(tables, capture.NAT)
	}
	return tables
}

// legacyObstruction describes the first target, in a table of iptables-legacy in front of our chains,
// that could keep packets from our rules, or returns "". The targets of all chains of such a table
// count. Errors: TooLarge, ErrChanging.
func legacyObstruction(last int32) (string, error) {
	names := legacyTablesInFront(last)
	for _, table := range xtables.Names() {
		if !slices.Contains(names, capture.Table(table.Name)) {
			continue
		}
		target, err := table.FindTarget(func(target string) bool { return !isHarmlessTarget(target) })
		if err != nil {
			return "", err
		}
		if target != "" {
			return fmt.Sprintf("target %q in legacy %s table %s, in front of the capture rules", target, table.Family, table.Name), nil
		}
	}
	return "", nil
}

// isHarmlessTarget reports whether an iptables target, of either variant, does not affect capture. A
// verdict or a jump has the target "", and the beginning of a chain has ERROR.
func isHarmlessTarget(name string) bool {
	switch name {
	case "", "ERROR", "LOG", "NFLOG", "REJECT", "TRACE", "TCPMSS", "CHECKSUM", "SNAT", "MASQUERADE":
		return true
	}
	return false
}
