// SPDX-License-Identifier: Apache-2.0

// Package kernel examines a pod's network namespace for the guard: what has changed there, whether it
// still contains the rules, and what else could decide about the pod's packets. It also restores the
// rules without breaking open connections. For connections that began before the rules, it creates
// entries in the kernel's connection tracking, because nat only sees packets of connections that
// conntrack does not know.
package kernel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
)

// generation returns the number of commits to nf_tables in the calling thread's namespace, by any
// program. While the number is unchanged, all rules are, except those of iptables-legacy.
func generation(ctx context.Context) (uint32, error) {
	r, err := nfnetlink.NewReader(ctx)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	found, err := nfnetlink.List(r, nfnetlink.Listing{
		Request: unix.NFT_MSG_GETGEN,
		Single:  true,
		What:    "generations",
		Limit:   1,
	}, func(m nfnetlink.Attributes) ([]uint32, error) {
		if id := m[unix.NFTA_GEN_ID]; len(id) == 4 {
			return []uint32{binary.BigEndian.Uint32(id)}, nil
		}
		return nil, nil
	})
	switch {
	case err != nil:
		return 0, fmt.Errorf("reading the generation of nf_tables: %w", err)
	case len(found) == 0:
		return 0, errors.New("reading the generation of nf_tables: the kernel returned none")
	}
	return found[0], nil
}

// refused returns the number of packets that our rules have refused in the calling thread's namespace.
// It does not read iptables-legacy.
func refused(ctx context.Context) (packets uint64, err error) {
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

// addPackets adds the counters of a chain's rules to packets.
func addPackets(r *nfnetlink.Reader, packets *uint64, family byte, table, chain string) error {
	l := nfnetlink.Listing{Family: family, Chain: chain, Limit: nfnetlink.MaxOurRules, Bytes: nfnetlink.MaxOurBytes}
	_, err := nfnetlink.ListRules(r, l, table, func(_ string, rule nfnetlink.Attributes) ([]struct{}, error) {
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
