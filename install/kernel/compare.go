// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
	"github.com/capture-cni/capture-cni/plugin/nftables"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

// References caches the digests of namespaces that hold a Ruleset. It serves one
// goroutine that compares many namespaces. Its zero value is ready.
type References struct{ digests map[string]string } // by the Ruleset's stamp

// maxReferences bounds the cache to some 100 KiB; a node has far fewer Rulesets.
const maxReferences = 1024

// of returns the digest of a namespace that holds the Ruleset.
func (r *References) of(ctx context.Context, rs capture.Ruleset) (string, error) {
	stamp := rs.Stamp()
	if known, ok := r.digests[stamp]; ok {
		return known, nil
	}
	reference, err := netfilter.Reference(ctx, nftables.Backend{}, rs)
	if err != nil {
		return "", err
	}
	if r.digests == nil || len(r.digests) >= maxReferences {
		r.digests = map[string]string{}
	}
	r.digests[stamp] = digestOf(reference)
	return r.digests[stamp], nil
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
