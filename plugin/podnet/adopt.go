// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/conntrack"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
)

const (
	// mostSockets of a family, and twice as many connections, live on.
	mostSockets = 1 << 15

	// mostEntries of conntrack are looked through for those without a socket.
	mostEntries = 1 << 16

	// adoptTimeout leaves most of a caller's time to the rules.
	adoptTimeout = time.Second
)

// Replace makes the namespace hold the Ruleset, by nftables, whatever of ours
// it held before. Rules that are not ours stay. Connections that began before live
// on; lost says why some don't: capture comes first.
func (n *Namespace) Replace(ctx context.Context, rs capture.Ruleset) (lost, err error) {
	own, addressErr := n.Addresses()
	err = n.do(func() error {
		lost = adopt(ctx)
		if err := install(ctx, rs, netfilter.NFTables{}.Replace); err != nil {
			return errors.Join(err, netfilter.Untrack())
		}
		lost = errors.Join(lost, addressErr, forget(ctx, own))
		return nil
	})
	return lost, err
}

// adopt enters the connections of the namespace's sockets into conntrack: nat
// rules leave alone what conntrack knows, and tproxy's rules let pass what is
// established. Conntrack is switched on first, so that it sees every connection
// begin that is not in the list.
func adopt(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, adoptTimeout)
	defer cancel()
	if err := netfilter.Track(); err != nil {
		return err
	}
	sockets, complete, err := conntrack.Sockets(ctx, mostSockets)
	if err != nil {
		return err
	}
	err = conntrack.Enter(ctx, conntrack.Connections(sockets))
	if !complete {
		err = errors.Join(err, fmt.Errorf("the pod has more than %d TCP sockets of one family: connections of the others end", mostSockets))
	}
	return err
}

// forget deletes conntrack's entries of connections that the namespace has no
// socket for: a crafted segment can leave one while there are no rules yet, and
// nat would not see the connection that begins later with its addresses and
// ports. Entries that lead to the proxy are harmless, and those of forwarded
// connections have their sockets elsewhere.
func forget(ctx context.Context, own []netip.Addr) error {
	limited, cancel := context.WithTimeout(ctx, adoptTimeout)
	defer cancel()
	isOwn := func(a netip.Addr) bool { return a.IsLoopback() || slices.Contains(own, a) }
	entries, complete, err := conntrack.Entries(limited, mostEntries, func(e conntrack.Entry) bool {
		return !e.Translated && !e.Over && (isOwn(e.Client.Addr()) || isOwn(e.Server.Addr()))
	})
	if err == nil && !complete {
		err = fmt.Errorf("conntrack has more than %d entries of the pod", mostEntries)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%w: all of the pod's connections end", err), conntrack.Flush(ctx))
	}
	// Listed after the entries: none of them is of a connection that began since.
	sockets, _, err := conntrack.Sockets(limited, mostSockets)
	return errors.Join(err, conntrack.Delete(ctx, conntrack.Orphans(entries, sockets)))
}
