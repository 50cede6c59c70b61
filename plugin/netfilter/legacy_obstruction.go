// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// legacyObstruction is Obstruction for the tables of iptables-legacy. Those named
// here have built-in chains in front of ours.
func legacyObstruction() (string, error) {
	for _, family := range []capture.Family{capture.IPv4, capture.IPv6} {
		legacy := legacyFamilies[family]
		names, err := os.ReadFile(legacy.tables)
		if err != nil {
			continue // this kernel, or this namespace, has none
		}
		for table := range strings.FieldsSeq(string(names)) {
			if !slices.Contains([]capture.Table{capture.Raw, capture.Mangle, capture.NAT}, capture.Table(table)) {
				continue
			}
			entries, err := legacy.entries(table)
			if err != nil {
				return "", fmt.Errorf("reading the legacy %s table: %w", table, err)
			}
			for _, target := range legacy.targets(entries) {
				if !isHarmlessTarget(target) {
					return fmt.Sprintf("target %q in legacy %s table %s, in front of our rules", target, family, table), nil
				}
			}
		}
	}
	return "", nil
}

// targets returns the names of the rules' targets. That of a plain verdict or a
// jump is empty.
func (f legacyFamily) targets(entries []byte) (targets []string) {
	for len(entries) > f.address+nextOffset+2 {
		target := int(binary.NativeEndian.Uint16(entries[f.address+targetOffset:]))
		next := int(binary.NativeEndian.Uint16(entries[f.address+nextOffset:]))
		if next <= 0 || next > len(entries) || target+targetName > next {
			break
		}
		targets = append(targets, untilNUL(entries[target+targetName:next]))
		entries = entries[next:]
	}
	return targets
}

// isHarmlessTarget reports whether a target of iptables, of either variant,
// changes nothing that decides about capture. "" is a plain verdict; ERROR marks
// the beginning of a chain.
func isHarmlessTarget(name string) bool {
	switch name {
	case "", "ERROR", "LOG", "NFLOG", "REJECT", "TRACE", "TCPMSS", "CHECKSUM", "SNAT", "MASQUERADE":
		return true
	}
	return false
}
