// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/netfilter"
	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
)

// enableConntrack makes conntrack track all connections of the calling thread's
// namespace, until replaceRules, Remove or disableConntrack. The kernel tracks them
// only while a rule reads a connection's state.
func enableConntrack(ctx context.Context) error {
	const chain = "unreachable"
	b, table := nfnetlink.NewBatch(), nfnetlink.InetTable(netfilter.TrackingTable)
	b.CreateTable(table, unix.NLM_F_CREATE)
	b.AddChain(table, chain, nil)
	err := b.AddRule(table, chain, "enables conntrack for a repair", []expr.Any{&expr.Ct{Key: expr.CtKeySTATE, Register: 1}})
	if err == nil {
		err = b.Commit(ctx)
	}
	if err != nil {
		return fmt.Errorf("enabling conntrack by table inet %s: %w", netfilter.TrackingTable, err)
	}
	return nil
}

// disableConntrack undoes enableConntrack. It succeeds where there is nothing to undo.
func disableConntrack(ctx context.Context) error {
	b := nfnetlink.NewBatch()
	b.DeleteTable(nfnetlink.InetTable(netfilter.TrackingTable))
	if err := b.Commit(ctx); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("deleting table inet %s: %w", netfilter.TrackingTable, err)
	}
	return nil
}
