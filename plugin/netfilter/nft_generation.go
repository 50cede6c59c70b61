// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Generation returns the number of commits to nf_tables in the calling thread's
// namespace, by any program: while it is unchanged, so is every rule.
func Generation(ctx context.Context) (uint32, error) {
	r, err := newReader(ctx)
	if err != nil {
		return 0, err
	}
	defer r.close()
	found, err := list(r, listing{request: unix.NFT_MSG_GETGEN, single: true, what: "generations", limit: 1}, func(m attributes) ([]uint32, error) {
		if id := m[unix.NFTA_GEN_ID]; len(id) == 4 {
			return []uint32{binary.BigEndian.Uint32(id)}, nil
		}
		return nil, nil
	})
	switch {
	case err != nil:
		return 0, fmt.Errorf("reading the generation of nf_tables: %w", err)
	case len(found) == 0:
		return 0, errors.New("reading the generation of nf_tables: the kernel returned none")
	}
	return found[0], nil
}
