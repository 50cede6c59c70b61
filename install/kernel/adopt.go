// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/iptables"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
	"github.com/capture-cni/capture-cni/plugin/nftables"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

const (
	// maxSockets bounds the sockets, of each family, whose connections survive.
	maxSockets = 1 << 15

	// maxEntries bounds the conntrack entries that are searched for stale ones.
	maxEntries = 1 << 16

	// adoptTimeout leaves most of the caller's time for the rules.
	adoptTimeout = time.Second
)

// Replace applies the Ruleset by nftables in place of all our rules, of any
// backend. Other rules stay. Connections that began before survive; lost is the
// reason why some do not, for which Replace does not fail. A fence has not judged them, and
// ends those that it would not let begin.
func Replace(ctx context.Context, n *podnet.Namespace, rs capture.Ruleset) (lost, err error) {
	own, addressErr := n.Addresses()
	if rs.HasFence() {
		return errFenced, n.Do(func() error {
			if err := podnet.Commit(ctx, rs, replaceRules); err != nil {
				return err
			}
			return FlushEntries(ctx)
		})
	}
	err = n.Do(func() error {
		lost = adopt(ctx)
		if err := podnet.Commit(ctx, rs, replaceRules); err != nil {
			return errors.Join(err, disableConntrack(ctx))
		}
		lost = errors.Join(lost, addressErr, deleteStale(ctx, own, true))
		return nil
	})
	return lost, err
}

var errFenced = errors.New("the pod has a fence: connections that began without it are reset, also those to the proxy")

// adopt creates conntrack entries for the connections of the namespace's sockets:
// nat rules ignore connections that have an entry, and tproxy's rules accept
// established ones. It enables conntrack first, so that conntrack sees the
// beginning of every connection that is not in the list.
func adopt(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, adoptTimeout)
	defer cancel()
	if err := enableConntrack(ctx); err != nil {
		return err
	}
	sockets, complete, err := Sockets(ctx, maxSockets)
	if err != nil {
		return err
	}
	err = CreateEntries(ctx, Connections(sockets))
	if !complete {
		err = errors.Join(err,
			fmt.Errorf("the pod has more than %d TCP sockets of one family: the connections of the other sockets are reset", maxSockets))
	}
	return err
}

// deleteStale deletes the conntrack entries of connections without a socket in the
// namespace. A crafted segment can create one while there are no rules, and nat
// would ignore a later connection with its addresses and ports. Translated
// entries lead to the proxy and are harmless. Entries of forwarded connections
// have their sockets in another namespace. Where not all entries and sockets can be
// listed, it resets the others' connections or, without resets, deletes nothing.
func deleteStale(ctx context.Context, own []netip.Addr, resets bool) error {
	limited, cancel := context.WithTimeout(ctx, adoptTimeout)
	defer cancel()
	isOwn := func(a netip.Addr) bool { return a.IsLoopback() || slices.Contains(own, a) }
	entries, complete, err := Entries(limited, maxEntries, func(e Entry) bool {
		return !e.Translated && !e.TimeWait && (isOwn(e.Client.Addr()) || isOwn(e.Server.Addr()))
	})
	if err == nil && !complete {
		err = fmt.Errorf("conntrack has more than %d entries of the pod", maxEntries)
	}
	if err != nil && resets {
		return errors.Join(fmt.Errorf("%w: all of the pod's connections are reset", err), FlushEntries(ctx))
	}
	if err != nil {
		return err
	}
	// Listed after the entries: the list has each entry's socket, if there is one.
	sockets, complete, err := Sockets(limited, maxSockets)
	if (err != nil || !complete) && !resets {
		return errors.Join(err, errors.New("not all sockets of the pod can be listed"))
	}
	return errors.Join(err, DeleteEntries(ctx, Orphans(entries, sockets)))
}

// DeleteStale deletes the conntrack entries of the namespace that have no socket and no
// translation, or nothing where it can't list all: the rules refuse connections of their
// addresses and ports until they expire.
func DeleteStale(ctx context.Context, n *podnet.Namespace) error {
	own, err := n.Addresses()
	if err != nil {
		return err
	}
	return n.Do(func() error { return deleteStale(ctx, own, false) })
}

// replaceRules removes rules of ours, of any backend, and applies the Ruleset. For
// rules in nf_tables both are one transaction: every packet meets the old rules or
// the new ones, and redirected connections stay translated.
func replaceRules(ctx context.Context, rs capture.Ruleset) error {
	if err := iptables.RemoveLegacy(ctx); err != nil {
		return err
	}
	before, err := nfnetlink.TableHandle(ctx, capture.TableName)
	if err != nil {
		return err
	}
	b := nfnetlink.NewBatch()
	if err := netfilter.QueueRemoval(ctx, b); err != nil {
		return err
	}
	return nftables.Commit(ctx, b, rs, before)
}

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
