// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// trackingTable exists during a repair. No hook leads to its only rule, so it
// decides about no packet.
const trackingTable = capture.TableName + "-tracking"

// EnableConntrack makes conntrack track all connections of the calling thread's
// namespace, until Replace, Remove or DisableConntrack. The kernel tracks them
// only while a rule reads a connection's state.
func EnableConntrack(ctx context.Context) error {
	const chain = "unreachable"
	b, table := newBatch(), inetTable(trackingTable)
	b.createTable(table, unix.NLM_F_CREATE)
	b.addChain(table, chain, nil)
	err := b.addRule(table, chain, "enables conntrack for a repair", []expr.Any{&expr.Ct{Key: expr.CtKeySTATE, Register: register}})
	if err == nil {
		err = b.commit(ctx)
	}
	if err != nil {
		return fmt.Errorf("enabling conntrack by table inet %s: %w", trackingTable, err)
	}
	return nil
}

// DisableConntrack undoes EnableConntrack. It succeeds where there is nothing to undo.
func DisableConntrack(ctx context.Context) error {
	b := newBatch()
	b.deleteTable(inetTable(trackingTable))
	if err := b.commit(ctx); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("deleting table inet %s: %w", trackingTable, err)
	}
	return nil
}
