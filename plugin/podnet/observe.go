// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"context"
	"crypto/sha256"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
)

// State is what a namespace holds of traffic capture.
type State = netfilter.State

// TooLarge is what a namespace holds too much of to be read.
type TooLarge = netfilter.TooLarge

// ErrChanging means that the rules changed faster than they could be read.
var ErrChanging = netfilter.ErrChanging

// State looks, changes nothing and executes nothing. Errors: TooLarge, ErrChanging.
func (n *Namespace) State(ctx context.Context) (state State, err error) {
	err = n.do(func() error {
		state, err = netfilter.Inspect(ctx)
		return err
	})
	return state, err
}

// Generation changes with every change of a rule in the namespace, but for
// those of iptables-legacy.
func (n *Namespace) Generation(ctx context.Context) (generation uint32, err error) {
	err = n.do(func() error {
		generation, err = netfilter.Generation(ctx)
		return err
	})
	return generation, err
}

// References keeps what the kernel makes of Rulesets, for one goroutine that
// looks at many namespaces often: a digest for each shape, which Rulesets share
// whose sets alone differ. Its zero value is ready.
type References struct{ shapes map[string][sha256.Size]byte } // by the shape's stamp

// maxShapes bounds the references to some 100 KiB; a node has far fewer.
const maxShapes = 1024

// of returns what the namespace sums up to that holds the Ruleset.
func (r *References) of(ctx context.Context, rs capture.Ruleset) (netfilter.Digest, error) {
	shape := rs.Shape()
	sum, known := r.shapes[shape.Stamp()]
	if !known {
		table, err := netfilter.Reference(ctx, netfilter.NFTables{}, shape)
		if err != nil {
			return netfilter.Digest{}, err
		}
		if r.shapes == nil || len(r.shapes) >= maxShapes {
			r.shapes = map[string][sha256.Size]byte{}
		}
		sum = table.Digest().Shape
		r.shapes[shape.Stamp()] = sum
	}
	return netfilter.DigestOf(sum, rs), nil
}

// Compare is Check that first looks at digests. Only where they differ are the
// two compared in full; for iptables, which has no sets, always.
func (n *Namespace) Compare(ctx context.Context, references *References, rs capture.Ruleset, asked config.Backend) ([]string, error) {
	if asked != config.NFTables {
		return n.Check(ctx, rs, asked)
	}
	return n.check(ctx, rs, asked, func(backend netfilter.Backend) ([]string, error) {
		want, err := references.of(ctx, rs)
		if err != nil {
			return nil, err
		}
		found, err := backend.Dump(ctx)
		if err == nil && found.Digest() == want {
			return nil, nil
		}
		return compareDumps(ctx, backend, rs, found, err)
	})
}

// Is tells whether the namespace is the one that a path leads to now; a path
// that leads nowhere, or may not be followed, is of no namespace.
func (n *Namespace) Is(path string) (bool, error) {
	var own, there unix.Stat_t
	if err := unix.Fstat(int(n.netns.Fd()), &own); err != nil {
		return false, fmt.Errorf("looking at the network namespace: %w", err)
	}
	return unix.Stat(path, &there) == nil && own.Dev == there.Dev && own.Ino == there.Ino, nil
}
