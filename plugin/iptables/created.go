// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"slices"
	"strings"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/xtables"
)

// created is what iptables-nft creates in one table for our rules.
// QueueRemoval deletes it together with them.
type created struct {
	table  bool           // the table itself
	chains []capture.Hook // its built-in chains
}

// createdPrefix begins the comment that notes what was created.
const createdPrefix = "made:"

// createdFor returns what iptables-nft will create for one family's rules. The
// tables of iptables-legacy can't be deleted and need no note.
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

// note returns the comment for the marker chain, "" if nothing was created.
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

// parseCreated parses a note; it returns nothing for another comment.
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

// isNote reports whether a comment is a note, which differs from namespace to
// namespace.
func isNote(comment string) bool { return strings.HasPrefix(comment, createdPrefix) }
