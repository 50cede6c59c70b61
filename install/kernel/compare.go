// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"crypto/sha256"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
	"github.com/capture-cni/capture-cni/plugin/nftables"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

// References caches the digests of References, one for each shape: Rulesets that
// differ only in their sets share a shape. It serves one goroutine that compares
// many namespaces. Its zero value is ready.
type References struct{ shapes map[string][sha256.Size]byte } // by the shape's stamp

// maxShapes bounds the cache to some 100 KiB; a node has far fewer shapes.
const maxShapes = 1024

// of returns the digest of a namespace that holds the Ruleset.
func (r *References) of(ctx context.Context, rs capture.Ruleset) (digest, error) {
	shape := shapeOf(rs)
	sum, known := r.shapes[shape.Stamp()]
	if !known {
		reference, err := netfilter.Reference(ctx, nftables.Backend{}, shape)
		if err != nil {
			return digest{}, err
		}
		if r.shapes == nil || len(r.shapes) >= maxShapes {
			r.shapes = map[string][sha256.Size]byte{}
		}
		sum = digestOf(reference).shape
		r.shapes[shape.Stamp()] = sum
	}
	return expectedDigest(sum, rs), nil
}

// Compare is podnet.Namespace.Check with a faster comparison for nftables: it compares digests,
// and the rules in full only if the digests differ.
func Compare(ctx context.Context, n *podnet.Namespace, references *References, rs capture.Ruleset, asked config.Backend) ([]string, error) {
	if asked != config.NFTables {
		return n.Check(ctx, rs, asked)
	}
	return n.CheckBy(ctx, rs, asked, func(backend netfilter.Backend) ([]string, error) {
		want, err := references.of(ctx, rs)
		if err != nil {
			return nil, err
		}
		found, err := backend.Dump(ctx)
		if err == nil && digestOf(found) == want {
			return nil, nil
		}
		return podnet.Differences(ctx, backend, rs, found, err)
	})
}
