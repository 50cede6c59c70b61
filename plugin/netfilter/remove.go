// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"errors"

	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/iptables"
	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
)

// Remove removes the rules of all backends from the calling thread's namespace. It succeeds if there
// are none. If it can't read some of the rules, it still removes the rules of nf_tables that it found
// until then, and those of iptables-legacy, and returns an error.
func Remove(ctx context.Context) error {
	return errors.Join(nfnetlink.Remove(ctx, QueueRemoval), iptables.RemoveLegacy(ctx))
}

// QueueRemoval adds the deletion of our nftables and iptables-nft rules to a transaction. If it returns
// an error, the transaction deletes the rules that were found until then.
func QueueRemoval(ctx context.Context, b *nfnetlink.Batch) error {
	// A repair that was interrupted leaves TrackingTable behind.
	for _, name := range []string{capture.TableName, TrackingTable} {
		handle, err := nfnetlink.TableHandle(ctx, name)
		if err != nil {
			return err
		}
		if handle != nfnetlink.NoTable {
			b.DeleteTable(nfnetlink.InetTable(name))
		}
	}
	return iptables.QueueRemoval(ctx, b)
}

// TrackingTable is the name of a table that exists during a repair. Its only rule makes the kernel
// track connections. No hook leads to this rule, so the table does not affect any packet.
const TrackingTable = capture.TableName + "-tracking"
