// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Generation counts what was committed to nf_tables in the calling thread's
// namespace, by whomever: as long as it is the same, so is every rule.
func Generation(ctx context.Context) (uint32, error) {
	r, err := newReader(ctx)
	if err != nil {
		return 0, err
	}
	defer r.close()
	found, err := list(r, listing{request: unix.NFT_MSG_GETGEN, single: true, what: "generations", most: 1}, func(m attributes) ([]uint32, error) {
		if id := m[unix.NFTA_GEN_ID]; len(id) == 4 {
			return []uint32{binary.BigEndian.Uint32(id)}, nil
		}
		return nil, nil
	})
	switch {
	case err != nil:
		return 0, fmt.Errorf("asking for the generation of the rules: %w", err)
	case len(found) == 0:
		return 0, errors.New("the kernel does not tell the generation of the rules")
	}
	return found[0], nil
}
