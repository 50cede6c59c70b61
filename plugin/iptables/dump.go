// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/dump"
	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
	"github.com/capture-cni/capture-cni/plugin/xtables"
)

// dumpFromNFTables reads the rules of iptables-nft from nf_tables. Like the backend nftables, it keeps
// only attributes that decide about packets.
func dumpFromNFTables(ctx context.Context) (dump.Dump, error) {
	r, err := nfnetlink.NewReader(ctx)
	if err != nil {
		return dump.Dump{}, err
	}
	defer r.Close()
	tables, err := listNFTTables(r)
	if err != nil {
		return dump.Dump{}, err
	}
	var dumped dump.Dump
	for _, name := range slices.SortedFunc(maps.Keys(tables), compareTables) {
		if !slices.Contains(tables[name], MarkerChain) {
			continue
		}
		objects, err := dumpChains(r, name, tables[name])
		if err != nil {
			return dump.Dump{}, err
		}
		dumped.Objects = append(dumped.Objects, objects...)
	}
	return dumped, nil
}

func compareTables(a, b xtables.Table) int {
	return cmp.Or(cmp.Compare(a.Family, b.Family), cmp.Compare(a.Name, b.Name))
}

// dumpChains returns our chains of a table and, of other chains, the rules that lead to ours.
func dumpChains(r *nfnetlink.Reader, table xtables.Table, chains []string) ([]dump.Object, error) {
	rules, err := nfnetlink.ListRules(r, rulesOf(table), table.Name, func(chain string, rule nfnetlink.Attributes) ([]dump.Rule, error) {
		expressions := rule[unix.NFTA_RULE_EXPRESSIONS]
		if !isOurs(chain) && !leadsToOurs(expressions) {
			return nil, nil
		}
		why := ruleComment(rule)
		if chain == MarkerChain && isNote(why) { // notes can differ between namespaces, so they are not compared
			return nil, nil
		}
		parsed, err := dump.Parse(why, expressions)
		return []dump.Rule{{Chain: chain, Item: parsed}}, err
	})
	if err != nil {
		return nil, err
	}
	return objectsOf(table, chains, rules), nil
}

// objectsOf returns our chains, and the other chains to which one of the rules belongs, as objects with
// these rules.
func objectsOf(t xtables.Table, chains []string, rules []dump.Rule) []dump.Object {
	items := dump.ByChain(rules)
	var objects []dump.Object
	for _, chain := range slices.Sorted(slices.Values(chains)) {
		if isOurs(chain) || len(items[chain]) > 0 {
			objects = append(objects, dump.Object{Name: fmt.Sprintf("chain %s of %s table %s", chain, t.Family, t.Name), Items: items[chain]})
		}
	}
	return objects
}

// rulesOf returns the request that lists a table's rules, for nfnetlink.ListRules.
func rulesOf(table xtables.Table) nfnetlink.Listing {
	return nfnetlink.Listing{Family: nfnetlink.FamilyNumber[table.Family], What: "rules in table " + table.Name, Limit: nfnetlink.MaxRules}
}

// ruleComment returns the rule's comment. Depending on its version, iptables keeps a comment in the
// user data, or in a match that always holds.
func ruleComment(rule nfnetlink.Attributes) string {
	if comment, ok := nfnetlink.UserComment(rule[unix.NFTA_RULE_USERDATA]); ok {
		return comment
	}
	comment := ""
	_ = nfnetlink.EachAttribute(rule[unix.NFTA_RULE_EXPRESSIONS], func(_ uint16, expression []byte) error {
		name, _ := nfnetlink.Nested(expression, unix.NFTA_EXPR_DATA, unix.NFTA_MATCH_NAME)
		if info, ok := nfnetlink.Nested(expression, unix.NFTA_EXPR_DATA, unix.NFTA_MATCH_INFO); ok &&
			nfnetlink.Text(name) == "comment" && comment == "" {
			comment = nfnetlink.UntilNUL(info)
		}
		return nil // dump.Parse reports malformed expressions
	})
	return comment
}
