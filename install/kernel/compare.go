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

// Differences returns how a namespace of nftables differs from the Ruleset's, a line for each
// difference. It compares digests, and all rules only if the digests differ.
func (r *References) Differences(ctx context.Context, o Observation, rs capture.Ruleset) ([]string, error) {
	if o.Backend == config.NFTables && o.RulesFault == nil {
		want, err := r.of(ctx, rs)
		if err != nil {
			return nil, err
		}
		if o.Digest() == want {
			return o.Missing(rs), nil
		}
	}
	return o.Observation.Differences(ctx, rs, o.Backend)
}

// Digest returns the digest of the rules, as text for a file.
func (o Observation) Digest() string { return digestOf(o.Rules) }

// digestVersion grows with every change of what a digest covers: digests of
// different versions are not comparable.
const digestVersion = "2:"

// digestOf returns the digest of a Dump. Dumps without a Diff have equal ones.
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

func addItems(s *dump.Sum, items []dump.Item) {
	*s = binary.AppendUvarint(*s, uint64(len(items)))
	for _, i := range items {
		s.Add(i.Label, i.Content)
	}
}
