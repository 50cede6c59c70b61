// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"errors"
	"fmt"

	"github.com/google/nftables"
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
func EnableConntrack() error {
	conn, err := newWriter()
	if err != nil {
		return err
	}
	table := conn.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: trackingTable})
	chain := conn.AddChain(&nftables.Chain{Table: table, Name: "unreachable"})
	conn.AddRule(&nftables.Rule{
		Table: table, Chain: chain, UserData: encodeComment("enables conntrack for a repair"),
		Exprs: []expr.Any{&expr.Ct{Key: expr.CtKeySTATE, Register: register}},
	})
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("enabling conntrack by table inet %s: %w", trackingTable, err)
	}
	return nil
}

// DisableConntrack undoes EnableConntrack. It succeeds where there is nothing to undo.
func DisableConntrack() error {
	conn, err := newWriter()
	if err != nil {
		return err
	}
	conn.DelTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: trackingTable})
	if err := conn.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("deleting table inet %s: %w", trackingTable, err)
	}
	return nil
}
