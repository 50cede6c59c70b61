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

// trackingTable is ours in a namespace that is being repaired. No hook leads to
// its only rule: it decides about no packet.
const trackingTable = capture.TableName + "-tracking"

// Track has conntrack follow all connections of the calling thread's namespace,
// until Replace, Remove or Untrack. The kernel does so only where some rule
// needs it: one that reads a connection's state.
func Track() error {
	conn, err := newWriter()
	if err != nil {
		return err
	}
	table := conn.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: trackingTable})
	chain := conn.AddChain(&nftables.Chain{Table: table, Name: "unreachable"})
	conn.AddRule(&nftables.Rule{
		Table: table, Chain: chain, UserData: encodeComment("switches conntrack on for a repair"),
		Exprs: []expr.Any{&expr.Ct{Key: expr.CtKeySTATE, Register: register}},
	})
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("switching conntrack on by table inet %s: %w", trackingTable, err)
	}
	return nil
}

// Untrack takes back what Track did. Nothing there is success.
func Untrack() error {
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
