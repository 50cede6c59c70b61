// SPDX-License-Identifier: Apache-2.0

// Package kernel examines a pod's network namespace for the guard: whether it still contains our rules,
// what has changed, and what else could decide about the pod's packets. It also updates rules, and
// restores them without breaking the open connections that it can list, except those of fenced pods. For
// TCP connections that began before the rules, it creates entries in conntrack, because nat decides only
// about connections that conntrack does not know.
package kernel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
)

// generation returns nf_tables' generation in the calling thread's namespace, a number that each commit
// by any program changes. While it is unchanged, no rules have changed, except those of iptables-legacy.
func generation(ctx context.Context) (uint32, error) {
	r, err := nfnetlink.NewReader(ctx)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	found, err := nfnetlink.List(r, nfnetlink.Listing{
		Request: unix.NFT_MSG_GETGEN,
		Single:  true,
		What:    "generations",
		Limit:   1,
	}, func(m nfnetlink.Attributes) ([]uint32, error) {
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
