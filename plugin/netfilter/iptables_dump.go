// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"
)

// dumpFromNFTables reads the rules of iptables-nft from nf_tables, as
// NFTables.Dump does: raw attributes, reduced to what decides about packets.
func dumpFromNFTables(ctx context.Context) (Dump, error) {
	r, err := newReader(ctx)
	if err != nil {
		return Dump{}, err
	}
	defer r.close()
	tables, err := listNFTTables(r)
	if err != nil {
		return Dump{}, err
	}
	var dumped Dump
	for _, name := range slices.SortedFunc(maps.Keys(tables), compareTables) {
		if !slices.Contains(tables[name], markerChain) {
			continue
		}
		objects, err := dumpChains(r, name, tables[name])
		if err != nil {
			return Dump{}, err
		}
		dumped.objects = append(dumped.objects, objects...)
	}
	return dumped, nil
}

func compareTables(a, b tableOf) int {
	return cmp.Or(cmp.Compare(a.family, b.family), cmp.Compare(a.name, b.name))
}

// dumpChains returns our chains of a table, and the other chains reduced to
// their jumps to ours.
func dumpChains(r *reader, table tableOf, chains []string) ([]object, error) {
	labels := labels{}
	rules, err := listRules(r, rulesOf(table), table.name, func(chain string, rule attributes) ([]ruleOf, error) {
		expressions := rule[unix.NFTA_RULE_EXPRESSIONS]
		if !isOurs(chain) && !leadsToOurs(expressions) {
			return nil, nil
		}
		why := ruleComment(rule)
		if chain == markerChain && isNote(why) { // it differs from namespace to namespace
			return nil, nil
		}
		parsed, err := labels.item(why, expressions)
		return []ruleOf{{chain, parsed}}, err
	})
	if err != nil {
		return nil, err
	}
	return table.objects(chains, rules), nil
}

// objects returns our chains, and other chains with rules, as objects with their
// rules.
func (t tableOf) objects(chains []string, rules []ruleOf) []object {
	items := map[string][]item{}
	for _, rule := range rules {
		items[rule.chain] = append(items[rule.chain], rule.item)
	}
	var objects []object
	for _, chain := range slices.Sorted(slices.Values(chains)) {
		if isOurs(chain) || len(items[chain]) > 0 {
			objects = append(objects, object{name: fmt.Sprintf("chain %s of %s table %s", chain, t.family, t.name), items: items[chain]})
		}
	}
	return objects
}

// rulesOf returns the listing of a table's rules, for listRules.
func rulesOf(table tableOf) listing {
	return listing{family: familyNumber[table.family], what: "rules in table " + table.name, limit: maxRules}
}

// ruleComment returns the rule's comment. Versions of iptables keep it in the
// user data, or as a match that always holds.
func ruleComment(rule attributes) string {
	if comment, ok := userComment(rule[unix.NFTA_RULE_USERDATA]); ok {
		return comment
	}
	comment := ""
	_ = eachAttribute(rule[unix.NFTA_RULE_EXPRESSIONS], func(_ uint16, expression []byte) error {
		name, _ := nested(expression, unix.NFTA_EXPR_DATA, unix.NFTA_MATCH_NAME)
		if info, ok := nested(expression, unix.NFTA_EXPR_DATA, unix.NFTA_MATCH_INFO); ok && text(name) == "comment" && comment == "" {
			comment = untilNUL(info)
		}
		return nil // labels.item reports malformed expressions
	})
	return comment
}
