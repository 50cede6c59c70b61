// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/dump"
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

// digestVersion grows with every change of what a digest covers: digests of
// different versions are not comparable.
const digestVersion = "2:"

// digestOf returns the digest of a Dump, as text for a file. Dumps without a Diff have
// equal ones.
func digestOf(t dump.Dump) string {
	objects := slices.SortedFunc(slices.Values(t.Objects), func(a, b dump.Object) int { return cmp.Compare(a.Name, b.Name) })
	var shape, elements, stamp dump.Sum
	for _, o := range objects {
		shape.Add(o.Name, o.Content)
		switch {
		case o.KeyType != "":
			elements.Add(o.Name)
			addItems(&elements, o.Items)
		case o.Name == "chain "+capture.StampChain:
			for _, i := range o.Items {
				shape.Add(i.Content)
				stamp.Add(i.Label)
			}
		default:
			addItems(&shape, o.Items)
		}
	}
	shapeSum, elementsSum := shape.Sum(), elements.Sum()
	var all dump.Sum
	all.Add(string(shapeSum[:]), string(elementsSum[:]), string(stamp))
	total := all.Sum()
	return digestVersion + hex.EncodeToString(total[:])
}

// Comparable reports whether a digest's text is of this version.
func Comparable(digest string) bool { return strings.HasPrefix(digest, digestVersion) }

// Digest returns the digest of our rules in the namespace, as text.
func Digest(ctx context.Context, n *podnet.Namespace, asked config.Backend) (string, error) {
	return podnet.Read(n, func() (string, error) {
		backend, err := netfilter.Find(ctx, asked)
		if err != nil {
			return "", err
		}
		found, err := backend.Dump(ctx)
		return digestOf(found), err
	})
}

func addItems(s *dump.Sum, items []dump.Item) {
	*s = binary.AppendUvarint(*s, uint64(len(items)))
	for _, i := range items {
		s.Add(i.Label, i.Content)
	}
}
