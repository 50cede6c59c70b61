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

// socketBuffer holds the largest batch that a pod's annotations (256 KiB in
// all) can make, and the answers to it.
const socketBuffer = 8 << 20

// NFTables is the Backend of one table in the inet family.
type NFTables struct{}

// Name is config.NFTables.
func (NFTables) Name() config.Backend { return config.NFTables }

// Apply adds the Ruleset in one transaction.
func (NFTables) Apply(ctx context.Context, rs capture.Ruleset) error {
	conn, err := newWriter()
	if err != nil {
		return err
	}
	err = commit(conn, rs)
	if errors.Is(err, syscall.ENOBUFS) {
		// The answers did not fit; the transaction itself may well have been
		// committed. The stamp tells, for it is part of the transaction.
		if state, stateErr := Inspect(ctx); stateErr == nil && state.Stamp == rs.Stamp() {
			return nil
		}
	}
	return err
}

// Replace is Apply where rules of ours may be, which it takes out, whatever
// backend put them there. What nf_tables has of them goes in the transaction in
// which the Ruleset comes: so no packet finds neither, and the kernel goes on
// to translate the connections that were redirected.
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

// commit adds the Ruleset to what is queued, and commits that.
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

// write queues the whole table. Chains come before rules, which may jump to
// any of them.
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
