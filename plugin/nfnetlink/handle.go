// SPDX-License-Identifier: Apache-2.0

package nfnetlink

import (
	"context"
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// NoTable is the handle of a table that does not exist.
const NoTable = 0

// TableHandle returns the handle of a table of the family inet, without listing all tables, or NoTable
// if the table does not exist. No later table of the namespace gets the same handle.
func TableHandle(ctx context.Context, name string) (uint64, error) {
	r, err := NewReader(ctx)
	if err != nil {
		return NoTable, err
	}
	defer r.Close()
	return First(List(r, Listing{
		Family: unix.NFPROTO_INET, Request: unix.NFT_MSG_GETTABLE, Single: true, What: "tables", Limit: 1,
		Filter: Named(unix.NFTA_TABLE_NAME, name),
	}, func(m Attributes) ([]uint64, error) {
		handle := m[attributeTableHandle]
		if len(handle) != 8 {
			return nil, fmt.Errorf("table %s has a handle of %d bytes: expected 8", name, len(handle))
		}
		return []uint64{binary.BigEndian.Uint64(handle)}, nil
	}))
}

// attributeTableHandle is NFTA_TABLE_HANDLE of linux/netfilter/nf_tables.h.
const attributeTableHandle = 4
