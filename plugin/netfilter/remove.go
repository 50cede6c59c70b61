// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// Remove takes everything of ours out of the calling thread's namespace,
// whatever backend put it there. Nothing there is success.
func Remove(ctx context.Context) error {
	return errors.Join(removeFromNFTables(), removeLegacy(ctx))
}

// removeFromNFTables takes out our own tables and what iptables' newer variant
// put in. Where there is nothing to do, no transaction is begun: even an
// empty-handed one waits for a grace period of the kernel's.
func removeFromNFTables() error {
	writer, err := newWriter()
	if err != nil {
		return err
	}
	if found, err := queueRemoval(writer); err != nil || !found {
		return err
	}
	if err := writer.Flush(); err != nil {
		return fmt.Errorf("taking our rules out: %w", err)
	}
	return nil
}

// queueRemoval queues all that takes our rules out of nf_tables, and tells
// whether that is anything. The kernel keeps those of iptables' newer variant
// there, too, so one transaction does for all, and neither iptables nor an
// unharmed remainder of our rules is needed.
func queueRemoval(writer *nftables.Conn) (found bool, err error) {
	reader, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return false, fmt.Errorf("opening netlink: %w", err)
	}
	defer reader.Close()
	own, err := ownTables(reader)
	if err != nil {
		return false, err
	}
	tables, err := nfTables(reader)
	if err != nil {
		return false, err
	}
	maps.DeleteFunc(tables, func(_ tableOf, chains []string) bool { return !slices.Contains(chains, capture.MarkerChain) })
	for _, name := range own {
		writer.DelTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: name})
	}
	for name, chains := range tables {
		r := removal{writer: writer, name: name, chains: chains}
		if err := r.read(reader); err != nil {
			return false, err
		}
		r.queue()
	}
	return len(own)+len(tables) > 0, nil
}

// ownTables are those that are ours altogether; that of a repair is left where
// the repair did not come to its end.
func ownTables(conn *netlink.Conn) (names []string, err error) {
	tables, err := dump(conn, unix.NFPROTO_INET, unix.NFT_MSG_GETTABLE, nil)
	for _, table := range tables {
		name := text(table[unix.NFTA_TABLE_NAME])
		if table[familyOf][0] == unix.NFPROTO_INET && (name == capture.TableName || name == trackingTable) {
			names = append(names, name)
		}
	}
	return names, err
}

// removal is what is to be done with one table.
type removal struct {
	writer *nftables.Conn
	name   tableOf
	chains []string

	jumps []jump         // in others' chains, to ours
	rules map[string]int // how many others' chains have besides
	made  capture.Made
}

// jump is a rule that leads to one of our chains.
type jump struct {
	chain  string
	handle uint64
}

func (r *removal) read(conn *netlink.Conn) error {
	rules, err := dump(conn, protocolFamily[r.name.family], unix.NFT_MSG_GETRULE, nil)
	if err != nil {
		return err
	}
	r.rules = map[string]int{}
	for _, rule := range rules {
		chain := text(rule[unix.NFTA_RULE_CHAIN])
		if text(rule[unix.NFTA_RULE_TABLE]) != r.name.name || isOurs(chain) {
			continue
		}
		if leadsToOurs(rule[unix.NFTA_RULE_EXPRESSIONS]) {
			r.jumps = append(r.jumps, jump{chain, bigEndian(rule[unix.NFTA_RULE_HANDLE])})
		} else {
			r.rules[chain]++
		}
	}
	marker, err := readRules(conn, protocolFamily[r.name.family], r.name.name, capture.MarkerChain)
	r.made, _ = capture.ParseMade(comment(marker, capture.MadePrefix))
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
	list, err := netlink.UnmarshalAttributes(expressions)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(list, func(expression netlink.Attribute) bool {
		chain, _ := nested(expression.Data, unix.NFTA_EXPR_DATA, unix.NFTA_IMMEDIATE_DATA, unix.NFTA_DATA_VERDICT, unix.NFTA_VERDICT_CHAIN)
		return isOurs(text(chain))
	})
}
