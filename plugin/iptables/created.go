// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"slices"
	"strings"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/xtables"
)

// created records which table and built-in chains iptables-nft creates for our rules. QueueRemoval
// deletes this table and these chains together with the rules, unless they contain other rules or
// chains.
type created struct {
	table  bool           // the table itself
	chains []capture.Hook // its built-in chains
}

// createdPrefix begins the comment that records what iptables-nft created.
const createdPrefix = "made:"

// createdFor returns the tables and chains that iptables-nft will create for one family's rules.
// iptables-legacy needs no record, because its tables can't be deleted.
func createdFor(rs capture.Ruleset, family capture.Family, variant config.Backend, existing xtables.Tables) map[capture.Table]created {
	if variant != config.IPTablesNFT {
		return nil
	}
	rs = rs.For(family)
	notes := map[capture.Table]created{}
	for _, table := range tablesOf(rs) {
		chains, exists := existing[xtables.Table{Family: family, Name: string(table)}]
		note := created{table: !exists}
		for _, chain := range rs.Chains {
			if chain.Table == table && chain.Hook != "" && !slices.Contains(chains, string(chain.Hook)) {
				note.chains = append(note.chains, chain.Hook)
			}
		}
		notes[table] = note
	}
	return notes
}

// note returns the comment for the marker chain, or "" if iptables-nft creates nothing.
func (c created) note() string {
	if !c.table && len(c.chains) == 0 {
		return ""
	}
	words := []string{createdPrefix}
	if c.table {
		words = append(words, "table")
	}
	for _, hook := range c.chains {
		words = append(words, string(hook))
	}
	return strings.Join(words, " ")
}

// parseCreated parses the comment that note returns. For another comment it returns the zero value.
func parseCreated(comment string) (c created) {
	if !isNote(comment) {
		return c
	}
	for _, word := range strings.Fields(comment)[1:] {
		if word == "table" {
			c.table = true
		} else {
			c.chains = append(c.chains, capture.Hook(word))
		}
	}
	return c
}

// isNote reports whether note returned the comment. Notes can differ between namespaces.
func isNote(comment string) bool { return strings.HasPrefix(comment, createdPrefix) }
