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

// State describes the capture rules in a namespace.
type State = netfilter.State

// TooLarge means that a namespace exceeds a limit of what is read from it.
type TooLarge = netfilter.TooLarge

// NoIPv6 means that the kernel lacks what the backend needs for IPv6.
type NoIPv6 = netfilter.NoIPv6

// ErrChanging means that the rules changed during each attempt to read them.
var ErrChanging = netfilter.ErrChanging

// State reads the namespace's State. It changes nothing and executes no program.
// Errors: TooLarge, ErrChanging.
func (n *Namespace) State(ctx context.Context) (State, error) {
	return read(n, func() (State, error) { return netfilter.Inspect(ctx) })
}

// Generation returns a number that changes with every change of a rule in the
// namespace, except for rules of iptables-legacy.
func (n *Namespace) Generation(ctx context.Context) (uint32, error) {
	return read(n, func() (uint32, error) { return netfilter.Generation(ctx) })
}

// References caches the digests of References, one for each shape: Rulesets that
// differ only in their sets share a shape. It serves one goroutine that compares
// many namespaces. Its zero value is ready.
type References struct{ shapes map[string][sha256.Size]byte } // by the shape's stamp

// maxShapes bounds the cache to some 100 KiB; a node has far fewer shapes.
const maxShapes = 1024

// of returns the digest of a namespace that holds the Ruleset.
func (r *References) of(ctx context.Context, rs capture.Ruleset) (netfilter.Digest, error) {
	shape := rs.Shape()
	sum, known := r.shapes[shape.Stamp()]
	if !known {
		reference, err := netfilter.Reference(ctx, netfilter.NFTables{}, shape)
		if err != nil {
			return netfilter.Digest{}, err
		}
		if r.shapes == nil || len(r.shapes) >= maxShapes {
			r.shapes = map[string][sha256.Size]byte{}
		}
		sum = reference.Digest().Shape
		r.shapes[shape.Stamp()] = sum
	}
	return netfilter.DigestOf(sum, rs), nil
}

// Compare is Check with a faster comparison for nftables: it compares digests,
// and the rules in full only if the digests differ.
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

// Digest returns the digest of our rules in the namespace, as text.
func (n *Namespace) Digest(ctx context.Context, asked config.Backend) (string, error) {
	return read(n, func() (string, error) {
		backend, err := netfilter.Find(ctx, asked)
		if err != nil {
			return "", err
		}
		found, err := backend.Dump(ctx)
		return found.Digest().String(), err
	})
}

// Comparable reports whether a digest's text is of this version of digests.
func Comparable(digest string) bool { return netfilter.Comparable(digest) }

// Obstruction describes a rule of another table that could keep packets from
// ours, which nftables holds; "" where there is none.
func (n *Namespace) Obstruction(ctx context.Context) (string, error) {
	return read(n, func() (string, error) { return netfilter.Obstruction(ctx) })
}

// Refused returns how many packets our rules have refused, except for iptables-legacy.
func (n *Namespace) Refused(ctx context.Context) (uint64, error) {
	return read(n, func() (uint64, error) { return netfilter.Refused(ctx) })
}

// HooksInFront describes the chains of other programs that a packet meets before the
// last of ours. Errors: TooLarge, ErrChanging.
func (n *Namespace) HooksInFront(ctx context.Context, p capture.Packet) ([]string, error) {
	return read(n, func() ([]string, error) { return netfilter.HooksInFront(ctx, p) })
}

// Is reports whether the namespace is the one at a path. It returns false for a
// path that does not exist or can't be followed.
func (n *Namespace) Is(path string) (bool, error) {
	var own, there unix.Stat_t
	if err := unix.Fstat(int(n.netns.Fd()), &own); err != nil {
		return false, fmt.Errorf("reading the network namespace's inode: %w", err)
	}
	return unix.Stat(path, &there) == nil && own.Dev == there.Dev && own.Ino == there.Ino, nil
}
