// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"errors"

	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/iptables"
	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
)

// Remove removes the rules of all backends from the calling thread's namespace. It
// succeeds if there are none. If it can't read some of the rules, it still removes the
// rules that it can read, and returns the error.
func Remove(ctx context.Context) error {
	return errors.Join(nfnetlink.Remove(ctx, QueueRemoval), iptables.RemoveLegacy(ctx))
}

// QueueRemoval queues the deletion of our rules in nf_tables, including those of
// iptables-nft, so one transaction deletes all. If it returns an error, it has queued the
// rules that it found.
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
