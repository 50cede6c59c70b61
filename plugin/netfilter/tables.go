// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// tableOf names one of iptables' tables.
type tableOf struct {
	family capture.Family
	name   string
}

// tableList is what a namespace has of one variant's tables, with the names of
// their chains. It is found out without a program: iptables would create what
// it is asked to list.
type tableList map[tableOf][]string

func (l tableList) has(family capture.Family) bool {
	for table := range l {
		if table.family == family {
			return true
		}
	}
	return false
}

// missing is what iptables' newer variant is about to make for the rules. The
// older one's tables can't be taken away again, and need no note.
func (l tableList) missing(rs capture.Ruleset, family capture.Family, variant capture.Backend) map[capture.Table]capture.Made {
	if variant != capture.IPTablesNFT {
		return nil
	}
	made := map[capture.Table]capture.Made{}
	for _, table := range rs.Tables() {
		chains, exists := l[tableOf{family, string(table)}]
		note := capture.Made{Table: !exists}
		for _, hook := range rs.Hooks(table) {
			if !slices.Contains(chains, string(hook)) {
				note.Chains = append(note.Chains, hook)
			}
		}
		made[table] = note
	}
	return made
}

func listTables(variant capture.Backend) (tableList, error) {
	if variant == capture.IPTablesLegacy {
		return legacyTables()
	}
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, fmt.Errorf("opening netlink: %w", err)
	}
	defer conn.Close()
	return nfTables(conn)
}

// protocolFamily is the family of nf_tables in which iptables keeps its tables.
var protocolFamily = map[capture.Family]byte{capture.IPv4: unix.NFPROTO_IPV4, capture.IPv6: unix.NFPROTO_IPV6}

func nfTables(conn *netlink.Conn) (tableList, error) {
	chains, err := dump(conn, unix.NFPROTO_UNSPEC, unix.NFT_MSG_GETCHAIN, nil)
	if err != nil {
		return nil, err
	}
	list := iptablesChains(chains)
	tables, err := dump(conn, unix.NFPROTO_UNSPEC, unix.NFT_MSG_GETTABLE, nil)
	for _, message := range tables {
		for family, number := range protocolFamily {
			table := tableOf{family, text(message[unix.NFTA_TABLE_NAME])}
			if _, ok := list[table]; !ok && message[familyOf][0] == number {
				list[table] = nil // a table without chains
			}
		}
	}
	return list, err
}

// iptablesChains picks the chains of those families that iptables uses.
func iptablesChains(chains []attributes) tableList {
	list := tableList{}
	for _, message := range chains {
		for family, number := range protocolFamily {
			if message[familyOf][0] == number {
				table := tableOf{family, text(message[unix.NFTA_CHAIN_TABLE])}
				list[table] = append(list[table], text(message[unix.NFTA_CHAIN_NAME]))
			}
		}
	}
	return list
}

func legacyTables() (tableList, error) {
	list := tableList{}
	for family, legacy := range legacyFamilies {
		names, err := os.ReadFile(legacy.tables)
		if err != nil {
			continue // this kernel, or this namespace, has none
		}
		for name := range strings.FieldsSeq(string(names)) {
			entries, err := legacy.entries(name)
			if err != nil {
				return nil, fmt.Errorf("reading the legacy %s table: %w", name, err)
			}
			list[tableOf{family, name}] = legacy.chains(entries)
		}
	}
	return list, nil
}
