// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// Remove takes everything of ours out of the calling thread's namespace,
// whatever backend put it there. Nothing there is success.
func Remove(ctx context.Context) error {
	return errors.Join(removeFromNFTables(ctx), removeLegacy(ctx))
}

// removeFromNFTables takes out our own tables and what iptables' newer variant
// put in. Where there is nothing to do, no transaction is begun: even an
// empty-handed one waits for a grace period of the kernel's. What can't be read
// keeps nothing else from being taken out.
func removeFromNFTables(ctx context.Context) error {
	writer, err := newWriter()
	if err != nil {
		return err
	}
	found, err := queueRemoval(ctx, writer)
	if !found {
		return err
	}
	if flushErr := writer.Flush(); flushErr != nil {
		err = errors.Join(err, fmt.Errorf("taking our rules out: %w", flushErr))
	}
	return err
}

// queueRemoval queues all that takes our rules out of nf_tables, and tells
// whether that is anything; also with an error, all that it could find. The
// kernel keeps those of iptables' newer variant there, too, so one transaction
// does for all, and neither iptables nor an unharmed remainder of our rules is
// needed.
func queueRemoval(ctx context.Context, writer *nftables.Conn) (found bool, err error) {
	// That of a repair is left where the repair did not come to its end.
	for _, name := range []string{capture.TableName, trackingTable} {
		isThere, err := hasTable(ctx, name)
		if err != nil {
			return found, err
		}
		if isThere {
			writer.DelTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: name})
			found = true
		}
	}
	r, err := newReader(ctx)
	if err != nil {
		return found, err
	}
	defer r.close()
	tables, err := nfTables(r)
	if err != nil {
		return found, err
	}
	maps.DeleteFunc(tables, func(_ tableOf, chains []string) bool { return !slices.Contains(chains, markerChain) })
	for name, chains := range tables {
		removal := removal{writer: writer, name: name, chains: chains}
		if err := removal.read(r); err != nil {
			return found, err
		}
		removal.queue()
		found = true
	}
	return found, nil
}

// hasTable asks for a table by its name, however many others there are.
func hasTable(ctx context.Context, name string) (bool, error) {
	r, err := newReader(ctx)
	if err != nil {
		return false, err
	}
	defer r.close()
	found, err := list(r, listing{
		family: unix.NFPROTO_INET, request: unix.NFT_MSG_GETTABLE, single: true, what: "tables", most: 1,
		filter: named(unix.NFTA_TABLE_NAME, name),
	}, func(m attributes) ([]attributes, error) { return []attributes{m}, nil })
	return len(found) > 0, err
}
