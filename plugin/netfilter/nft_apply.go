// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// NFTables is the Backend that keeps all rules in one table of the inet family.
type NFTables struct{}

// Name returns config.NFTables.
func (NFTables) Name() config.Backend { return config.NFTables }

// Apply adds the Ruleset in one transaction.
func (NFTables) Apply(ctx context.Context, rs capture.Ruleset) error {
	return commit(ctx, newBatch(), rs, noTable)
}

// Replace removes rules of ours, of any backend, and applies the Ruleset. For
// rules in nf_tables both are one transaction: every packet meets the old rules or
// the new ones, and redirected connections stay translated.
func (NFTables) Replace(ctx context.Context, rs capture.Ruleset) error {
	if err := removeLegacy(ctx); err != nil {
		return err
	}
	before, err := tableHandle(ctx, capture.TableName)
	if err != nil {
		return err
	}
	b := newBatch()
	if _, err := queueRemoval(ctx, b); err != nil {
		return err
	}
	return commit(ctx, b, rs, before)
}

// commit adds the Ruleset to a batch, and commits it. before is the handle of the table
// that the batch deletes. If the kernel's answer is lost, a table with another handle
// shows that the transaction was committed.
func commit(ctx context.Context, b *batch, rs capture.Ruleset, before uint64) error {
	if err := write(b, rs); err != nil {
		return err
	}
	err := b.commit(ctx)
	if errors.Is(err, errUnanswered) {
		after, readErr := tableHandle(context.WithoutCancel(ctx), capture.TableName)
		if readErr == nil && after != noTable && after != before {
			return nil
		}
		err = errors.Join(err, readErr)
	}
	if err != nil {
		return fmt.Errorf("committing table inet %s: %w", capture.TableName, err)
	}
	return nil
}

// write adds the whole table. Chains come before rules, which can jump to any of them.
func write(b *batch, rs capture.Ruleset) error {
	table := inetTable(capture.TableName)
	b.createTable(table, unix.NLM_F_EXCL)
	b.addChain(table, capture.StampChain, nil)
	if err := b.addRule(table, capture.StampChain, rs.Stamp(), []expr.Any{&expr.Verdict{Kind: expr.VerdictReturn}}); err != nil {
		return err
	}
	sets := b.addSets(table, rs.Sets())
	for _, chain := range rs.Chains {
		b.addChain(table, chain.NFTName(), baseOf(chain))
	}
	for _, chain := range rs.Chains {
		for _, rule := range chain.Rules {
			if err := b.addRule(table, chain.NFTName(), rule.Why, encodeRule(chain.Table, rule, sets)); err != nil {
				return err
			}
		}
	}
	return nil
}

// baseOf returns nil for a chain that only rules lead to.
func baseOf(chain capture.Chain) *hookedAt {
	if chain.Hook == "" {
		return nil
	}
	hook := map[capture.Hook]uint32{capture.Prerouting: hookPrerouting, capture.Output: hookOutput, capture.Postrouting: hookPostrouting}[chain.Hook]
	return &hookedAt{hook, int32(chain.Priority()), chain.Type()}
}
