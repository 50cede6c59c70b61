// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// Remove takes everything of ours out of the calling thread's namespace,
// whatever backend put it there. Nothing there is success.
func Remove(ctx context.Context) error {
	return errors.Join(removeFromNFTables(ctx), removeLegacy(ctx))
}

// removeFromNFTables takes out our own tables and what iptables' newer variant
// put in. Where there is nothing to do, no transaction is begun: even an
// empty-handed one waits for a grace period of the kernel's. What can't be read
// keeps nothing else from being taken out.
func removeFromNFTables(ctx context.Context) error {
	writer, err := newWriter()
	if err != nil {
		return err
	}
	found, err := queueRemoval(ctx, writer)
	if !found {
		return err
	}
	if flushErr := writer.Flush(); flushErr != nil {
		err = errors.Join(err, fmt.Errorf("taking our rules out: %w", flushErr))
	}
	return err
}

// queueRemoval queues all that takes our rules out of nf_tables, and tells
// whether that is anything; also with an error, all that it could find. The
// kernel keeps those of iptables' newer variant there, too, so one transaction
// does for all, and neither iptables nor an unharmed remainder of our rules is
// needed.
func queueRemoval(ctx context.Context, writer *nftables.Conn) (found bool, err error) {
	// That of a repair is left where the repair did not come to its end.
	for _, name := range []string{capture.TableName, trackingTable} {
		isThere, err := hasTable(ctx, name)
		if err != nil {
			return found, err
		}
		if isThere {
			writer.DelTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: name})
			found = true
		}
	}
	r, err := newReader(ctx)
	if err != nil {
		return found, err
	}
	defer r.close()
	tables, err := nfTables(r)
	if err != nil {
		return found, err
	}
	maps.DeleteFunc(tables, func(_ tableOf, chains []string) bool { return !slices.Contains(chains, capture.MarkerChain) })
	for name, chains := range tables {
		removal := removal{writer: writer, name: name, chains: chains}
		if err := removal.read(r); err != nil {
			return found, err
		}
		removal.queue()
		found = true
	}
	return found, nil
}

// hasTable asks for a table by its name, however many others there are.
func hasTable(ctx context.Context, name string) (bool, error) {
	r, err := newReader(ctx)
	if err != nil {
		return false, err
	}
	defer r.close()
	found, err := list(r, listing{
		family: unix.NFPROTO_INET, request: unix.NFT_MSG_GETTABLE, single: true, what: "tables", most: 1,
		filter: named(unix.NFTA_TABLE_NAME, name),
	}, func(m attributes) ([]attributes, error) { return []attributes{m}, nil })
	return len(found) > 0, err
}

// removal is what is to be done with one table.
type removal struct {
	writer *nftables.Conn
	name   tableOf
	chains []string

	jumps []otherRule    // that lead to our chains
	rules map[string]int // how many others' chains have besides
	made  capture.Made
}

// otherRule is a rule of a chain that is not ours.
type otherRule struct {
	chain  string
	handle uint64
	jumps  bool // to one of our chains
}

func (r *removal) read(from *reader) error {
	rules, err := list(from, rulesOf(r.name), func(rule attributes) ([]otherRule, error) {
		chain := text(rule[unix.NFTA_RULE_CHAIN])
		if text(rule[unix.NFTA_RULE_TABLE]) != r.name.name || isOurs(chain) {
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
	made, err := findComment(from, protocolFamily[r.name.family], r.name.name, capture.MarkerChain, capture.MadePrefix)
	r.made, _ = capture.ParseMade(made)
	return err
}

// queue adds the table's part to the transaction: what leads into our chains
// goes first, then they do, then what was made for them and serves nobody else.
func (r *removal) queue() {
	family := nftables.TableFamily(protocolFamily[r.name.family])
	table := &nftables.Table{Family: family, Name: r.name.name}
	chain := func(name string) *nftables.Chain { return &nftables.Chain{Table: table, Name: name} }
	for _, j := range r.jumps {
		// The library never fails to queue a rule that has a handle.
		_ = r.writer.DelRule(&nftables.Rule{Table: table, Chain: chain(j.chain), Handle: j.handle})
	}
	ours := slices.DeleteFunc(slices.Clone(r.chains), func(name string) bool { return !isOurs(name) })
	for _, name := range ours {
		r.writer.FlushChain(chain(name))
	}
	for _, name := range ours {
		r.writer.DelChain(chain(name))
	}
	gone := len(ours)
	for _, hook := range r.made.Chains {
		if name := string(hook); slices.Contains(r.chains, name) && r.rules[name] == 0 {
			r.writer.DelChain(chain(name))
			gone++
		}
	}
	if r.made.Table && gone == len(r.chains) {
		r.writer.DelTable(table)
	}
}

// leadsToOurs looks for a verdict that names one of our chains.
func leadsToOurs(expressions []byte) bool {
	leads := false
	_ = eachAttribute(expressions, func(_ uint16, expression []byte) error {
		chain, _ := nested(expression, unix.NFTA_EXPR_DATA, unix.NFTA_IMMEDIATE_DATA, unix.NFTA_DATA_VERDICT, unix.NFTA_VERDICT_CHAIN)
		leads = leads || isOurs(text(chain))
		return nil // what is malformed leads nowhere
	})
	return leads
}
