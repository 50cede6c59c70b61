// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"slices"
	"strings"

	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/xtables"
)

// createdPrefix begins the comment that notes what iptables-nft created in one table for our
// rules: createdTable for the table itself, and its built-in chains. QueueRemoval deletes
// them together with the rules.
const (
	createdPrefix = "made:"
	createdTable  = "table"
)

// createdFor returns the notes on what iptables-nft will create for one family's rules, of
// tables in which it creates anything. existing is nil for iptables-legacy, whose tables
// can't be deleted and need no note.
func createdFor(rs capture.Ruleset, family capture.Family, existing xtables.Tables) map[capture.Table]string {
	notes := map[capture.Table]string{}
	if existing == nil {
		return notes
	}
	rs = rs.For(family)
	for _, table := range tablesOf(rs) {
		words := []string{createdPrefix}
		chains, exists := existing[xtables.Table{Family: family, Name: string(table)}]
		if !exists {
			words = append(words, createdTable)
		}
		for _, chain := range rs.Chains {
			if chain.Table == table && chain.Hook != "" && !slices.Contains(chains, string(chain.Hook)) {
				words = append(words, string(chain.Hook))
			}
		}
		if len(words) > 1 {
			notes[table] = strings.Join(words, " ")
		}
	}
	return notes
}

// parseCreated returns the words of a note, and nothing for another comment.
func parseCreated(comment string) []string {
	if !isNote(comment) {
		return nil
	}
	return strings.Fields(comment)[1:]
}

// isNote reports whether a comment is a note, which differs from namespace to
// namespace.
func isNote(comment string) bool { return strings.HasPrefix(comment, createdPrefix) }
