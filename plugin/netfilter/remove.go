// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"errors"

	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/iptables"
	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
)

// Remove removes all our rules, of any backend, from the calling thread's
// namespace. It succeeds where there are none. A list that can't be read does not keep it
// from removing what the others name.
func Remove(ctx context.Context) error {
	return errors.Join(nfnetlink.Remove(ctx, QueueRemoval), iptables.RemoveLegacy(ctx))
}

// QueueRemoval queues the deletion of our rules in nf_tables; with an error, of those that
// it found. The rules of iptables-nft are in nf_tables as well: one transaction deletes
// all.
func QueueRemoval(ctx context.Context, b *nfnetlink.Batch) error {
	// A repair that was interrupted leaves TrackingTable.
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

// TrackingTable exists during a repair. No hook leads to its only rule, so it
// decides about no packet.
const TrackingTable = capture.TableName + "-tracking"
