// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/dump"
	"github.com/capture-cni/capture-cni/plugin/xtables"
)

// dumpSaved parses the output of iptables-save. It returns our chains, and the rules of other chains
// that lead to ours.
func (b Backend) dumpSaved(ctx context.Context) (dump.Dump, error) {
	existing := xtables.Names()
	var dumped dump.Dump
	for _, family := range []capture.Family{capture.IPv4, capture.IPv6} {
		if !slices.ContainsFunc(existing, func(t xtables.Table) bool { return t.Family == family }) { // there is nothing to read
			continue
		}
		out, err := run(ctx, b.programs[family].root, nil, b.programs[family].save)
		if err != nil {
			return dump.Dump{}, err
		}
		for _, saved := range parseSaved(string(out)) {
			dumped.Objects = append(dumped.Objects, saved.ours(family)...)
		}
	}
	return dumped, nil
}

// onlyTables returns the parts of the output of iptables-save for some tables. If iptables-save did not
// print a table, onlyTables returns the table without rules, so that a restore empties it.
func onlyTables(text string, tables []capture.Table) string {
	var kept strings.Builder
	for _, table := range tables {
		header := fmt.Sprintf("*%s\n", table)
		_, after, found := strings.Cut("\n"+text, "\n"+header)
		kept.WriteString(header)
		if found {
			rules, _, _ := strings.Cut(after, "COMMIT\n")
			kept.WriteString(rules)
		}
		kept.WriteString("COMMIT\n")
	}
	return kept.String()
}

// savedTable is one table as iptables-save prints it.
type savedTable struct {
	name   string
	chains []string
	rules  []savedRule
}

// savedRule is a rule of a chain. Its text does not include "-A" and the chain's name.
type savedRule struct{ chain, text string }

// parseSaved parses the output of iptables-save: "*nat", ":CHAIN policy counters", "-A CHAIN rule",
// "COMMIT". It ignores other lines.
func parseSaved(text string) []savedTable {
	var tables []savedTable
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if name, ok := strings.CutPrefix(line, "*"); ok {
			tables = append(tables, savedTable{name: name})
			continue
		}
		if len(tables) == 0 {
			continue
		}
		last := &tables[len(tables)-1]
		if chain, ok := strings.CutPrefix(line, ":"); ok {
			name, _, _ := strings.Cut(chain, " ")
			last.chains = append(last.chains, name)
		}
		if rule, ok := strings.CutPrefix(line, "-A "); ok {
			chain, text, _ := strings.Cut(rule, " ")
			last.rules = append(last.rules, savedRule{chain, text})
		}
	}
	return tables
}

// leadsToOurs reports whether the rule's target, which is the end of its text, is one of our chains.
func (r savedRule) leadsToOurs() bool {
	words := strings.Fields(r.text)
	last := len(words) - 1
	return last > 0 && (words[last-1] == "-j" || words[last-1] == "-g") && isOurs(words[last])
}

// ours returns our chains of the table and the rules of other chains that lead to ours, as objects. If
// the table has no marker chain, none of its chains is ours.
func (t savedTable) ours(family capture.Family) []dump.Object {
	if !slices.Contains(t.chains, MarkerChain) {
		return nil
	}
	var rules []dump.Rule
	for _, rule := range t.rules {
		if !isOurs(rule.chain) && !rule.leadsToOurs() {
			continue
		}
		if rest, comment := cutComment(rule.text); rule.chain != MarkerChain || !isNote(comment) {
			rules = append(rules, dump.Rule{Chain: rule.chain, Item: dump.NewItem(comment, rest)})
		}
	}
	return objectsOf(xtables.Table{Family: family, Name: t.name}, t.chains, rules)
}

// cutComment returns a rule without its first comment, and the comment. iptables-save quotes a comment,
// unless it has only letters, digits, - and _, and puts a backslash before quotes and backslashes. rest
// begins with the text before the comment, so that a rule with a further match before the comment never
// equals one of ours.
func cutComment(rule string) (rest, comment string) {
	before, after, _ := strings.Cut(rule, "-m comment --comment ")
	var text strings.Builder
	for isQuoted := false; after != "" && (isQuoted || after[0] != ' '); after = after[1:] {
		switch {
		case after[0] == '"':
			isQuoted = !isQuoted
		case after[0] == '\\' && len(after) > 1:
			after = after[1:]
			fallthrough
		default:
			text.WriteByte(after[0])
		}
	}
	return before + strings.TrimPrefix(after, " "), text.String()
}
