// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"errors"

	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/iptables"
	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
)

// Remove removes our rules, of all backends, from the calling thread's namespace. It succeeds if there
// are none. If it can't read some of them, it still removes those of nf_tables that it found until then
// and those of iptables-legacy that it can read, and returns an error.
func Remove(ctx context.Context) error {
	return errors.Join(nfnetlink.Remove(ctx, QueueRemoval), iptables.RemoveLegacy(ctx))
}

// QueueRemoval adds the deletion of our nftables and iptables-nft rules to a transaction. If it returns
// an error, the transaction deletes the rules that were found until then.
func QueueRemoval(ctx context.Context, b *nfnetlink.Batch) error {
	// TrackingTable can exist during a repair, and after an interrupted one.
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

// TrackingTable is the name of a table that can exist during a repair. Its only rule makes the kernel
// track connections. No hook leads to this rule, so the rule examines no packet.
const TrackingTable = capture.TableName + "-tracking"
