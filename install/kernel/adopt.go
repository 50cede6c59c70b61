// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/iptables"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
	"github.com/capture-cni/capture-cni/plugin/nftables"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

const (
	// maxSockets limits, for each IP family, the number of sockets whose connections survive a repair.
	maxSockets = 1 << 15

	// maxEntries limits the number of conntrack entries among which deleteStale searches.
	maxEntries = 1 << 16

	// adoptTimeout limits the work on conntrack before the rules are applied, and the lists that
	// deleteStale reads, so that most of the caller's time is left for the rules.
	adoptTimeout = time.Second
)

// Replace removes all our rules, of any backend, and applies the Ruleset by nftables. It keeps other
// programs' rules, and open connections survive. If some connections may not survive, lost is the
// reason, which err does not contain. If the Ruleset has a fence, Replace forgets all connections, because
// the fence has not judged their beginnings, so that it resets the application's.
func Replace(ctx context.Context, n *podnet.Namespace, rs capture.Ruleset) (lost, err error) {
	own, addressErr := n.Addresses()
	if rs.HasFence() {
		return errFenced, n.Do(func() error {
			if err := replaceRules(ctx, rs); err != nil {
				return err
			}
			return FlushEntries(context.WithoutCancel(ctx)) // the rules may have taken all of the caller's time
		})
	}
	err = n.Do(func() error {
		lost = adopt(ctx)
		if err := replaceRules(ctx, rs); err != nil {
			return errors.Join(err, disableConntrack(ctx))
		}
		lost = errors.Join(lost, addressErr, deleteStale(ctx, own, true))
		return nil
	})
	return lost, err
}

var errFenced = errors.New("the pod has a fence, so the application's connections are reset, also those to the proxy")

// adopt creates conntrack entries for the connections of the namespace's sockets. Without entries, nat
// would redirect their packets, and TPROXY's rules would not accept them as established. adopt first
// enables conntrack, so that conntrack sees the beginning of each connection that the list of sockets
// lacks.
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

// deleteStale deletes the conntrack entries of TCP connections without a socket in the namespace. While
// a pod has no rules, a crafted segment can create such an entry, and nat would then ignore a later
// connection with the same addresses and ports. deleteStale keeps entries of connections that nat
// captured, entries in TIME_WAIT, and entries of forwarded connections, whose sockets are in another
// namespace. If it can't list all entries, it resets all connections of the pod. If it can't list all
// sockets, it also deletes the entries of sockets that it did not see. With resets false, it deletes
// nothing in these two cases, and returns an error. It also works after ctx has ended, because the rules
// may have taken all of the caller's time.
func deleteStale(ctx context.Context, own []netip.Addr, resets bool) error {
	ctx = context.WithoutCancel(ctx)
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
	// The sockets are listed after the entries, so that the list contains the socket of each entry that
	// has one.
	sockets, complete, err := Sockets(limited, maxSockets)
	if (err != nil || !complete) && !resets {
		return errors.Join(err, errors.New("not all sockets of the pod can be listed"))
	}
	return errors.Join(err, DeleteEntries(ctx, Orphans(entries, sockets)))
}

// DeleteStale deletes conntrack entries without a socket, as deleteStale does. If it can't list all
// entries and sockets, it deletes nothing and returns an error. The rules can then refuse new
// connections with the entries' addresses and ports until the entries expire.
func DeleteStale(ctx context.Context, n *podnet.Namespace) error {
	own, err := n.Addresses()
	if err != nil {
		return err
	}
	return n.Do(func() error { return deleteStale(ctx, own, false) })
}

// replaceRules applies the Ruleset, and removes our other rules, of any backend. It replaces rules in
// nf_tables by one transaction, during which redirected connections stay translated. It removes rules
// of iptables-legacy after that, so every packet meets the old rules, the new rules, or both. If it
// can't prepare that removal, it changes nothing.
func replaceRules(ctx context.Context, rs capture.Ruleset) error {
	removeLegacy, err := iptables.PrepareLegacyRemoval(ctx)
	if err != nil {
		return err
	}
	if err := podnet.PrepareAndApply(ctx, rs, replaceInNFTables); err != nil {
		return err
	}
	return removeLegacy()
}

func replaceInNFTables(ctx context.Context, rs capture.Ruleset) error {
	before, err := nfnetlink.TableHandle(ctx, capture.TableName)
	if err != nil {
		return err
	}
	b := nfnetlink.NewBatch()
	if err := netfilter.QueueRemoval(ctx, b); err != nil {
		return err
	}
	return nftables.CommitRules(ctx, b, rs, before)
}

// enableConntrack makes conntrack track all connections of the calling thread's namespace, until
// replaceRules, netfilter.Remove or disableConntrack is called. It adds a rule that reads the state of
// connections, because the kernel tracks them only if a rule needs that.
func enableConntrack(ctx context.Context) error {
	const chain = "unreachable"
	b, table := nfnetlink.NewBatch(), nfnetlink.InetTable(netfilter.TrackingTable)
	b.CreateTable(table, unix.NLM_F_CREATE)
	b.AddChain(table, chain, nil)
	b.AddRule(table, chain, "enables conntrack for a repair", func() {
		b.Expression("ct", func() {
			b.Number(unix.NFTA_CT_KEY, unix.NFT_CT_STATE)
			b.Number(unix.NFTA_CT_DREG, unix.NFT_REG_1)
		})
	})
	if err := b.Commit(ctx); err != nil {
		return fmt.Errorf("enabling conntrack by table inet %s: %w", netfilter.TrackingTable, err)
	}
	return nil
}

// disableConntrack undoes enableConntrack. It succeeds if there is nothing to undo.
func disableConntrack(ctx context.Context) error {
	b := nfnetlink.NewBatch()
	b.DeleteTable(nfnetlink.InetTable(netfilter.TrackingTable))
	if err := b.Commit(ctx); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("deleting table inet %s: %w", netfilter.TrackingTable, err)
	}
	return nil
}
