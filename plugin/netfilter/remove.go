// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// Remove removes all our rules, of any backend, from the calling thread's
// namespace. It succeeds where there are none.
func Remove(ctx context.Context) error {
	return errors.Join(removeFromNFTables(ctx), removeLegacy(ctx))
}

// removeFromNFTables removes our own tables and the rules of iptables-nft. It
// begins no transaction if there are none: even an empty one waits for an RCU
// grace period. A list that can't be read does not stop the rest of the removal.
func removeFromNFTables(ctx context.Context) error {
	b := newBatch()
	found, err := queueRemoval(ctx, b)
	if !found {
		return err
	}
	if commitErr := b.commit(ctx); commitErr != nil {
		err = errors.Join(err, fmt.Errorf("removing our rules: %w", commitErr))
	}
	return err
}

// queueRemoval queues the deletion of our rules in nf_tables, and reports whether
// there are any; with an error, it has queued those that it found. The rules of
// iptables-nft are in nf_tables as well: one transaction deletes all, without the
// programs of iptables, and even if some rules are missing.
func queueRemoval(ctx context.Context, b *batch) (found bool, err error) {
	// A repair that was interrupted leaves trackingTable.
	for _, name := range []string{capture.TableName, trackingTable} {
		handle, err := tableHandle(ctx, name)
		if err != nil {
			return found, err
		}
		if handle != noTable {
			b.deleteTable(inetTable(name))
			found = true
		}
	}
	r, err := newReader(ctx)
	if err != nil {
		return found, err
	}
	defer r.close()
	tables, err := listNFTTables(r)
	if err != nil {
		return found, err
	}
	maps.DeleteFunc(tables, func(_ tableOf, chains []string) bool { return !slices.Contains(chains, markerChain) })
	for name, chains := range tables {
		removal := removal{batch: b, name: name, chains: chains}
		if err := removal.read(r); err != nil {
			return found, err
		}
		removal.queue()
		found = true
	}
	return found, nil
}

// noTable is the handle of a table that does not exist.
const noTable = 0

// tableHandle returns the handle of a table, which no later table of the namespace has,
// without a list of all tables.
func tableHandle(ctx context.Context, name string) (uint64, error) {
	r, err := newReader(ctx)
	if err != nil {
		return noTable, err
	}
	defer r.close()
	found, err := list(r, listing{
		family: unix.NFPROTO_INET, request: unix.NFT_MSG_GETTABLE, single: true, what: "tables", limit: 1,
		filter: named(unix.NFTA_TABLE_NAME, name),
	}, func(m attributes) ([]uint64, error) {
		handle := m[attributeTableHandle]
		if len(handle) != 8 {
			return nil, fmt.Errorf("table %s has a handle of %d bytes", name, len(handle))
		}
		return []uint64{binary.BigEndian.Uint64(handle)}, nil
	})
	if err != nil || len(found) == 0 {
		return noTable, err
	}
	return found[0], nil
}

// attributeTableHandle is NFTA_TABLE_HANDLE of linux/netfilter/nf_tables.h.
const attributeTableHandle = 4
