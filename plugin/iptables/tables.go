// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
	"github.com/capture-cni/capture-cni/plugin/xtables"
)

func listTables(ctx context.Context, variant config.Backend) (xtables.Tables, error) {
	if variant == config.IPTablesLegacy {
		return xtables.List()
	}
	r, err := nfnetlink.NewReader(ctx)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return listNFTTables(r)
}

func listNFTTables(r *nfnetlink.Reader) (xtables.Tables, error) {
	chains, err := nfnetlink.ListChains(r)
	if err != nil {
		return nil, err
	}
	list := TablesOf(chains)
	tables, err := nfnetlink.ListNames(r,
		nfnetlink.Listing{Request: unix.NFT_MSG_GETTABLE, What: "tables", Limit: nfnetlink.MaxTables},
		unix.NFTA_TABLE_NAME, unix.NFTA_TABLE_NAME)
	for _, found := range tables {
		for family, number := range nfnetlink.FamilyNumber {
			table := xtables.Table{Family: family, Name: found.Table}
			if _, ok := list[table]; !ok && found.Family == number {
				list[table] = nil // the table exists, but has no chains
			}
		}
	}
	return list, err
}

// TablesOf returns the chains' tables in the families ip and ip6 of nf_tables, which iptables-nft uses.
func TablesOf(chains []nfnetlink.ChainName) xtables.Tables {
	list := xtables.Tables{}
	for _, chain := range chains {
		for family, number := range nfnetlink.FamilyNumber {
			if table := (xtables.Table{Family: family, Name: chain.Table}); chain.Family == number {
				list[table] = append(list[table], chain.Name)
			}
		}
	}
	return list
}

// isOurs reports whether a chain has a name of ours. A chain with such a name is ours if its table also
// has a marker chain.
func isOurs(chain string) bool {
	return chain == MarkerChain || strings.HasPrefix(chain, capture.ChainPrefix)
}
