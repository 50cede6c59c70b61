// SPDX-License-Identifier: Apache-2.0

// Package nftables is the backend that writes a Ruleset into one table of nf_tables, by netlink.
package nftables

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
)

// Backend keeps all rules in one table of the inet family.
type Backend struct{}

// Name returns config.NFTables.
func (Backend) Name() config.Backend { return config.NFTables }

// Apply adds the Ruleset in one transaction. It returns an error if our table already exists.
func (Backend) Apply(ctx context.Context, rs capture.Ruleset) error {
	return CommitRules(ctx, nfnetlink.NewBatch(), rs, nfnetlink.NoTable)
}

// CommitRules adds the Ruleset to a batch, and commits the batch. before is the handle of the table that the
// batch deletes, or nfnetlink.NoTable if it deletes none. If the kernel's answer is lost, CommitRules reads
// the table's handle, because a new handle proves that the kernel committed the transaction.
func CommitRules(ctx context.Context, b *nfnetlink.Batch, rs capture.Ruleset, before uint64) error {
	Queue(b, rs)
	err := b.Commit(ctx)
	if errors.Is(err, nfnetlink.ErrUnanswered) {
		after, readErr := nfnetlink.TableHandle(context.WithoutCancel(ctx), capture.TableName)
		if readErr == nil && after != nfnetlink.NoTable && after != before {
			return nil
		}
		err = errors.Join(err, readErr)
	}
	if err != nil {
		return fmt.Errorf("committing table inet %s: %w", capture.TableName, err)
	}
	return nil
}

// Queue adds our table with all its chains, sets and rules to a batch. It adds all of the Ruleset's
// chains before their rules, because a rule can jump to any chain.
func Queue(b *nfnetlink.Batch, rs capture.Ruleset) {
	table := nfnetlink.InetTable(capture.TableName)
	b.CreateTable(table, unix.NLM_F_EXCL)
	b.AddChain(table, capture.StampChain, nil)
	b.AddRule(table, capture.StampChain, rs.Stamp(), func() { encoder{batch: b}.verdict(unix.NFT_RETURN, "") })
	e := encoder{b, addSets(b, table, rs.Sets())}
	for _, chain := range rs.Chains {
		b.AddChain(table, chain.NFTName(), baseOf(chain))
	}
	for _, chain := range rs.Chains {
		for _, rule := range chain.Rules {
			b.AddRule(table, chain.NFTName(), rule.Why, func() { e.rule(chain.Table, rule) })
		}
	}
}

func baseOf(chain capture.Chain) *nfnetlink.Hook {
	if chain.Hook == "" {
		return nil
	}
	hook := map[capture.Hook]uint32{
		capture.Prerouting:  unix.NF_INET_PRE_ROUTING,
		capture.Input:       unix.NF_INET_LOCAL_IN,
		capture.Forward:     unix.NF_INET_FORWARD,
		capture.Output:      unix.NF_INET_LOCAL_OUT,
		capture.Postrouting: unix.NF_INET_POST_ROUTING,
	}[chain.Hook]
	return &nfnetlink.Hook{Number: hook, Priority: chain.Priority(), Type: chain.Type()}
}
