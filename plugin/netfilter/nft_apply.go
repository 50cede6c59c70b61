// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// socketBuffer is the size for the largest batch that a pod's annotations (256
// KiB in all) can need, and for the answers to it.
const socketBuffer = 8 << 20

// NFTables is the Backend that keeps all rules in one table of the inet family.
type NFTables struct{}

// Name returns config.NFTables.
func (NFTables) Name() config.Backend { return config.NFTables }

// Apply adds the Ruleset in one transaction.
func (NFTables) Apply(ctx context.Context, rs capture.Ruleset) error {
	conn, err := newWriter()
	if err != nil {
		return err
	}
	err = commit(conn, rs)
	if errors.Is(err, syscall.ENOBUFS) {
		// The answers exceeded the buffer; the transaction can be committed
		// nevertheless. If the stamp is there, it is.
		if state, stateErr := Inspect(ctx); stateErr == nil && state.Stamp == rs.Stamp() {
			return nil
		}
	}
	return err
}

// Replace removes rules of ours, of any backend, and applies the Ruleset. For
// rules in nf_tables both are one transaction: every packet meets the old rules or
// the new ones, and redirected connections stay translated.
func (NFTables) Replace(ctx context.Context, rs capture.Ruleset) error {
	if err := removeLegacy(ctx); err != nil {
		return err
	}
	conn, err := newWriter()
	if err != nil {
		return err
	}
	if _, err := queueRemoval(ctx, conn); err != nil {
		return err
	}
	return commit(conn, rs)
}

// commit adds the Ruleset to the queued messages, and commits them.
func commit(conn *nftables.Conn, rs capture.Ruleset) error {
	if err := write(conn, rs); err != nil {
		return err
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("committing table inet %s: %w", capture.TableName, err)
	}
	return nil
}

func newWriter() (*nftables.Conn, error) {
	conn, err := nftables.New(nftables.WithSockOptions(growBuffers))
	if err != nil {
		return nil, fmt.Errorf("opening netlink: %w", err)
	}
	return conn, nil
}

func growBuffers(conn *netlink.Conn) error {
	return errors.Join(conn.SetReadBuffer(socketBuffer), conn.SetWriteBuffer(socketBuffer))
}

// write queues the whole table. Chains come before rules, which can jump to any
// of them.
func write(conn *nftables.Conn, rs capture.Ruleset) error {
	table := conn.CreateTable(ourTable())
	stamp := conn.AddChain(&nftables.Chain{Table: table, Name: capture.StampChain})
	conn.AddRule(&nftables.Rule{
		Table: table, Chain: stamp, UserData: encodeComment(rs.Stamp()),
		Exprs: []expr.Any{&expr.Verdict{Kind: expr.VerdictReturn}},
	})
	sets, err := addSets(conn, table, rs.Sets())
	if err != nil {
		return err
	}
	chains := make([]*nftables.Chain, len(rs.Chains))
	for i, chain := range rs.Chains {
		chains[i] = conn.AddChain(encodeChain(table, chain))
	}
	for i, chain := range rs.Chains {
		for _, rule := range chain.Rules {
			conn.AddRule(&nftables.Rule{
				Table: table, Chain: chains[i], UserData: encodeComment(rule.Why),
				Exprs: encodeRule(chain.Table, rule, sets),
			})
		}
	}
	return nil
}

func ourTable() *nftables.Table {
	return &nftables.Table{Family: nftables.TableFamilyINet, Name: capture.TableName}
}

func encodeChain(table *nftables.Table, chain capture.Chain) *nftables.Chain {
	encoded := &nftables.Chain{Table: table, Name: chain.NFTName()}
	if chain.Hook == "" {
		return encoded
	}
	encoded.Type = nftables.ChainType(chain.Type())
	encoded.Hooknum = map[capture.Hook]*nftables.ChainHook{
		capture.Prerouting: nftables.ChainHookPrerouting,
		capture.Output:     nftables.ChainHookOutput,
	}[chain.Hook]
	encoded.Priority = nftables.ChainPriorityRef(nftables.ChainPriority(chain.Priority()))
	encoded.Policy = new(nftables.ChainPolicyAccept)
	return encoded
}
