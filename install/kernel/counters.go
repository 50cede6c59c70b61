// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/install/trace"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
)

// Counters contains the number of packets that matched each of our rules, by the chain's name in
// nftables. The number of a rule without a counter is 0. Of iptables-nft, it contains only the chains in
// refusing, and of iptables-legacy nothing.
type Counters map[string][]uint64

// Of returns the number of packets that matched the rule of a Meter, or 0 if there is no such rule.
func (c Counters) Of(m trace.Meter) uint64 {
	if m.Rule >= len(c[m.Chain]) {
		return 0
	}
	return c[m.Chain][m.Rule]
}

// refusing contains the chains that refuse packets that would bypass the proxy.
var refusing = []struct {
	table capture.Table
	chain string
}{{capture.Filter, capture.ChainRefuse}, {capture.Mangle, capture.ChainRefuse}, {capture.Filter, capture.ChainRefuseInbound}}

// Refused returns the number of packets that our rules have refused because they would bypass the proxy.
func (c Counters) Refused() (packets uint64) {
	for _, in := range refusing {
		for _, count := range c[capture.NFTChain(in.table, in.chain)] {
			packets += count
		}
	}
	return packets
}

// counters reads the counters of our rules in the calling thread's namespace.
func counters(ctx context.Context) (Counters, error) {
	r, err := nfnetlink.NewReader(ctx)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	found := Counters{}
	err = found.add(r, nfnetlink.Listing{Family: unix.NFPROTO_INET, What: "rules of the plugin"}, capture.TableName, "")
	for _, in := range refusing {
		for _, family := range nfnetlink.FamilyNumber {
			listing := nfnetlink.Listing{Family: family, Chain: in.chain}
			err = errors.Join(err, found.add(r, listing, string(in.table), capture.NFTChain(in.table, "")))
		}
	}
	return found, err
}

// add adds the counters of a table's rules, under the names of their chains with a prefix.
func (c Counters) add(r *nfnetlink.Reader, l nfnetlink.Listing, table, prefix string) error {
	type counter struct {
		chain   string
		packets uint64
	}
	l.Limit, l.Bytes = nfnetlink.MaxOurRules, nfnetlink.MaxOurBytes
	found, err := nfnetlink.ListRules(r, l, table, func(chain string, rule nfnetlink.Attributes) ([]counter, error) {
		of := counter{chain: prefix + chain}
		err := nfnetlink.EachAttribute(rule[unix.NFTA_RULE_EXPRESSIONS], func(_ uint16, expression []byte) error {
			name, _ := nfnetlink.Nested(expression, unix.NFTA_EXPR_NAME)
			count, _ := nfnetlink.Nested(expression, unix.NFTA_EXPR_DATA, unix.NFTA_COUNTER_PACKETS)
			if nfnetlink.Text(name) == "counter" && len(count) == 8 {
				of.packets += binary.BigEndian.Uint64(count)
			}
			return nil
		})
		return []counter{of}, err
	})
	for _, of := range found {
		c[of.chain] = append(c[of.chain], of.packets)
	}
	return err
}
