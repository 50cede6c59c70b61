// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
)

// Refused returns how many packets our rules have refused in the calling thread's
// namespace. It does not count those of iptables-legacy.
func Refused(ctx context.Context) (packets uint64, err error) {
	r, err := nfnetlink.NewReader(ctx)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	for _, table := range []capture.Table{capture.Filter, capture.Mangle} {
		err = errors.Join(err,
			addPackets(r, &packets, unix.NFPROTO_INET, capture.TableName, capture.NFTChain(table, capture.ChainRefuse)),
			addPackets(r, &packets, unix.NFPROTO_IPV4, string(table), capture.ChainRefuse),
			addPackets(r, &packets, unix.NFPROTO_IPV6, string(table), capture.ChainRefuse))
	}
	return packets, err
}

// addPackets adds the counters of a chain's rules.
func addPackets(r *nfnetlink.Reader, packets *uint64, family byte, table, chain string) error {
	l := nfnetlink.Listing{Family: family, What: "rules in chain " + chain, Limit: nfnetlink.MaxOurRules, Bytes: nfnetlink.MaxOurBytes, Filter: nfnetlink.Named(unix.NFTA_RULE_CHAIN, chain)}
	_, err := nfnetlink.ListRules(r, l, table, func(of string, rule nfnetlink.Attributes) ([]struct{}, error) {
		if of != chain {
			return nil, nil
		}
		return nil, nfnetlink.EachAttribute(rule[unix.NFTA_RULE_EXPRESSIONS], func(_ uint16, expression []byte) error {
			name, _ := nfnetlink.Nested(expression, unix.NFTA_EXPR_NAME)
			count, _ := nfnetlink.Nested(expression, unix.NFTA_EXPR_DATA, unix.NFTA_COUNTER_PACKETS)
			if nfnetlink.Text(name) == "counter" && len(count) == 8 {
				*packets += binary.BigEndian.Uint64(count)
			}
			return nil
		})
	})
	return err
}
