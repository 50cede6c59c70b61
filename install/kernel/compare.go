// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"

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

// Digest returns the digest of a namespace of nftables that holds the Ruleset.
func (r *References) Digest(ctx context.Context, rs capture.Ruleset) (string, error) {
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

// digestVersion grows with every change of what a digest covers: digests of
// different versions are not comparable.
const digestVersion = "3:"

// digestOf returns the digest of a Dump, as text for a file. Dumps without a Diff have equal
// ones: it leaves out comments, so that other words change no running pod.
func digestOf(t dump.Dump) string {
	var all dump.Sum
	for _, o := range slices.SortedFunc(slices.Values(t.Objects), func(a, b dump.Object) int { return cmp.Compare(a.Name, b.Name) }) {
		all.Add(o.Name, o.Content)
		all = binary.AppendUvarint(all, uint64(len(o.Items)))
		for _, i := range o.Items {
			all.Add(i.Content)
		}
	}
	sum := all.Sum()
	return digestVersion + hex.EncodeToString(sum[:])
}

// Comparable reports whether a digest's text is of this version.
func Comparable(digest string) bool { return strings.HasPrefix(digest, digestVersion) }
