// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"context"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
)

// Digest identifies the rules of ours that the namespace holds.
func (n *Namespace) Digest(ctx context.Context, backend config.Backend) (digest string, err error) {
	err = n.do(func() error {
		backend, err := netfilter.Find(ctx, backend)
		if err != nil {
			return err
		}
		table, err := backend.Dump(ctx)
		digest = table.Digest().String()
		return err
	})
	return digest, err
}

// Comparable reports whether a digest is one that this program could have made.
func Comparable(digest string) bool { return netfilter.Comparable(digest) }

// Obstruction describes a rule of another table that could keep packets from
// ours, which nftables holds; "" where there is none.
func (n *Namespace) Obstruction(ctx context.Context) (obstruction string, err error) {
	err = n.do(func() error {
		obstruction, err = netfilter.Obstruction(ctx)
		return err
	})
	return obstruction, err
}
