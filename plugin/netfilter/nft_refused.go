// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// Refused returns how many packets our rules have refused in the calling thread's
// namespace. It does not count those of iptables-legacy.
func Refused(ctx context.Context) (packets uint64, err error) {
	r, err := newReader(ctx)
	if err != nil {
		return 0, err
	}
	defer r.close()
	for _, table := range []capture.Table{capture.Filter, capture.Mangle} {
		err = errors.Join(err,
			r.addPackets(&packets, unix.NFPROTO_INET, capture.TableName, capture.NFTChain(table, capture.ChainRefuse)),
			r.addPackets(&packets, unix.NFPROTO_IPV4, string(table), capture.ChainRefuse),
			r.addPackets(&packets, unix.NFPROTO_IPV6, string(table), capture.ChainRefuse))
	}
	return packets, err
}

// addPackets adds the counters of a chain's rules.
func (r *reader) addPackets(packets *uint64, family byte, table, chain string) error {
	l := listing{family: family, what: "rules in chain " + chain, limit: maxOurRules, bytes: maxOurBytes, filter: named(unix.NFTA_RULE_CHAIN, chain)}
	_, err := listRules(r, l, table, func(of string, rule attributes) ([]struct{}, error) {
		if of != chain {
			return nil, nil
		}
		return nil, eachAttribute(rule[unix.NFTA_RULE_EXPRESSIONS], func(_ uint16, expression []byte) error {
			name, _ := nested(expression, unix.NFTA_EXPR_NAME)
			count, _ := nested(expression, unix.NFTA_EXPR_DATA, unix.NFTA_COUNTER_PACKETS)
			if text(name) == "counter" && len(count) == 8 {
				*packets += binary.BigEndian.Uint64(count)
			}
			return nil
		})
	})
	return err
}
