// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
	"github.com/capture-cni/capture-cni/plugin/xtables"
)

// QueueRemoval adds the deletion of our iptables-nft rules to a transaction. It executes no program of
// iptables, and succeeds if there are no such rules. If it returns an error, the transaction deletes the
// rules that were found until then.
func QueueRemoval(ctx context.Context, b *nfnetlink.Batch) error {
	r, err := nfnetlink.NewReader(ctx)
	if err != nil {
		return err
	}
	defer r.Close()
	tables, err := listNFTTables(r)
	if err != nil {
		return err
	}
	for name, chains := range tables {
		if !slices.Contains(chains, MarkerChain) {
			continue
		}
		removal := removal{batch: b, name: name, chains: chains}
		if err := removal.read(r); err != nil {
			return err
		}
		removal.queue()
	}
	return nil
}

// removal removes our rules from one table.
type removal struct {
	batch  *nfnetlink.Batch
	name   xtables.Table
	chains []string

	jumps   []otherRule    // rules of other chains that jump to our chains
	rules   map[string]int // for each other chain, the number of its rules that do not jump to our chains
	created created
}

// otherRule is a rule of a chain that is not ours.
type otherRule struct {
	chain  string
	handle uint64
	jumps  bool // the rule jumps to one of our chains
}

func (r *removal) read(from *nfnetlink.Reader) error {
	rules, err := nfnetlink.ListRules(from, rulesOf(r.name), r.name.Name, func(chain string, rule nfnetlink.Attributes) ([]otherRule, error) {
		if isOurs(chain) {
			return nil, nil
		}
		return []otherRule{{chain, nfnetlink.BigEndian(rule[unix.NFTA_RULE_HANDLE]), leadsToOurs(rule[unix.NFTA_RULE_EXPRESSIONS])}}, nil
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
	note, err := nfnetlink.FindComment(from, nfnetlink.FamilyNumber[r.name.Family], r.name.Name, MarkerChain, createdPrefix)
	r.created = parseCreated(note)
	return err
}

// queue adds a table's deletions to the transaction: first the jumps to our chains, then our chains,
// and then the table and chains that iptables created for them, unless they contain other rules or
// chains.
func (r *removal) queue() {
	table := nfnetlink.Table{Family: nfnetlink.FamilyNumber[r.name.Family], Name: r.name.Name}
	for _, j := range r.jumps {
		r.batch.DeleteRule(table, j.chain, j.handle)
	}
	ours := slices.DeleteFunc(slices.Clone(r.chains), func(name string) bool { return !isOurs(name) })
	for _, name := range ours {
		r.batch.DeleteRules(table, name)
	}
	for _, name := range ours {
		r.batch.DeleteChain(table, name)
	}
	gone := len(ours)
	for _, hook := range r.created.chains {
		if name := string(hook); slices.Contains(r.chains, name) && r.rules[name] == 0 {
			r.batch.DeleteChain(table, name)
			gone++
		}
	}
	if r.created.table && gone == len(r.chains) {
		r.batch.DeleteTable(table)
	}
}

// leadsToOurs reports whether a rule's expressions jump or go to one of our chains.
func leadsToOurs(expressions []byte) bool {
	leads := false
	_ = nfnetlink.EachAttribute(expressions, func(_ uint16, expression []byte) error {
		chain, _ := nfnetlink.Nested(expression, unix.NFTA_EXPR_DATA, unix.NFTA_IMMEDIATE_DATA, unix.NFTA_DATA_VERDICT, unix.NFTA_VERDICT_CHAIN)
		leads = leads || isOurs(nfnetlink.Text(chain))
		return nil // a malformed expression has no effect
	})
	return leads
}
