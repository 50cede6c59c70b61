// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// tableOf names one of iptables' tables.
type tableOf struct {
	family capture.Family
	name   string
}

// tableList holds the tables of one variant in a namespace, with the names of
// their chains. No program lists them: iptables creates a table to list it.
type tableList map[tableOf][]string

func (l tableList) has(family capture.Family) bool {
	for table := range l {
		if table.family == family {
			return true
		}
	}
	return false
}

func listTables(ctx context.Context, variant config.Backend) (tableList, error) {
	if variant == config.IPTablesLegacy {
		return legacyTables()
	}
	r, err := newReader(ctx)
	if err != nil {
		return nil, err
	}
	defer r.close()
	return listNFTTables(r)
}

// objectName names a table or one of its chains.
type objectName struct {
	family      byte
	table, name string
}

// listNames lists the tables or chains of all families, by the attributes that
// hold their names.
func listNames(r *reader, l listing, table, name uint16) ([]objectName, error) {
	return list(r, l, func(m attributes) ([]objectName, error) {
		return []objectName{{m[familyOf][0], text(m[table]), text(m[name])}}, nil
	})
}

func listChains(r *reader) ([]objectName, error) {
	return listNames(r, listing{request: unix.NFT_MSG_GETCHAIN, what: "chains", limit: maxChains}, unix.NFTA_CHAIN_TABLE, unix.NFTA_CHAIN_NAME)
}

func listNFTTables(r *reader) (tableList, error) {
	chains, err := listChains(r)
	if err != nil {
		return nil, err
	}
	list := iptablesChains(chains)
	tables, err := listNames(r, listing{request: unix.NFT_MSG_GETTABLE, what: "tables", limit: maxTables}, unix.NFTA_TABLE_NAME, unix.NFTA_TABLE_NAME)
	for _, found := range tables {
		for family, number := range familyNumber {
			table := tableOf{family, found.table}
			if _, ok := list[table]; !ok && found.family == number {
				list[table] = nil // a table without chains
			}
		}
	}
	return list, err
}

// iptablesChains returns the chains of the families that iptables uses.
func iptablesChains(chains []objectName) tableList {
	list := tableList{}
	for _, chain := range chains {
		for family, number := range familyNumber {
			if table := (tableOf{family, chain.table}); chain.family == number {
				list[table] = append(list[table], chain.name)
			}
		}
	}
	return list
}

// isOurs reports whether a chain is ours, in a table that has a marker chain.
func isOurs(chain string) bool {
	return chain == markerChain || strings.HasPrefix(chain, capture.ChainPrefix)
}
