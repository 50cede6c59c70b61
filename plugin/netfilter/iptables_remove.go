// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"slices"

	"golang.org/x/sys/unix"
)

// removal removes our rules from one table.
type removal struct {
	batch  *batch
	name   tableOf
	chains []string

	jumps   []otherRule    // rules of other chains that jump to ours
	rules   map[string]int // number of their other rules, by chain
	created created
}

// otherRule is a rule of a chain that is not ours.
type otherRule struct {
	chain  string
	handle uint64
	jumps  bool // to one of our chains
}

func (r *removal) read(from *reader) error {
	rules, err := listRules(from, rulesOf(r.name), r.name.name, func(chain string, rule attributes) ([]otherRule, error) {
		if isOurs(chain) {
			return nil, nil
		}
		return []otherRule{{chain, bigEndian(rule[unix.NFTA_RULE_HANDLE]), leadsToOurs(rule[unix.NFTA_RULE_EXPRESSIONS])}}, nil
	})
	if err != nil {
		return err
	}
	r.rules = map[string]int{}
	for _, rule := range rules {
		if rule.jumps {
			r.jumps = append(r.jumps, rule)
		} else {
			r.rules[rule.chain]++
		}
	}
	note, err := findComment(from, familyNumber[r.name.family], r.name.name, markerChain, createdPrefix)
	r.created = parseCreated(note)
	return err
}

// queue adds the table's part to the transaction. It deletes the jumps to our
// chains first, then the chains, then what iptables created for them, unless it
// holds other rules or chains.
func (r *removal) queue() {
	table := nftTable{familyNumber[r.name.family], r.name.name}
	for _, j := range r.jumps {
		r.batch.deleteRule(table, j.chain, j.handle)
	}
	ours := slices.DeleteFunc(slices.Clone(r.chains), func(name string) bool { return !isOurs(name) })
	for _, name := range ours {
		r.batch.deleteRules(table, name)
	}
	for _, name := range ours {
		r.batch.deleteChain(table, name)
	}
	gone := len(ours)
	for _, hook := range r.created.chains {
		if name := string(hook); slices.Contains(r.chains, name) && r.rules[name] == 0 {
			r.batch.deleteChain(table, name)
			gone++
		}
	}
	if r.created.table && gone == len(r.chains) {
		r.batch.deleteTable(table)
	}
}

// leadsToOurs reports whether a verdict names one of our chains.
func leadsToOurs(expressions []byte) bool {
	leads := false
	_ = eachAttribute(expressions, func(_ uint16, expression []byte) error {
		chain, _ := nested(expression, unix.NFTA_EXPR_DATA, unix.NFTA_IMMEDIATE_DATA, unix.NFTA_DATA_VERDICT, unix.NFTA_VERDICT_CHAIN)
		leads = leads || isOurs(text(chain))
		return nil // malformed expressions lead nowhere
	})
	return leads
}
