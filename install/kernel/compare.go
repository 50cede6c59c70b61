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

// References computes and caches the digests of namespaces that contain only a Ruleset's rules. Only one
// goroutine may use it. The zero value is ready to use.
type References struct{ digests map[string]string } // by the Ruleset's stamp

// MaxReferences limits the cached digests, which take about 200 KiB. A node has far fewer Rulesets.
const MaxReferences = 1024

// Digest returns the digest of the dump of a namespace that contains the Ruleset in nftables.
func (r *References) Digest(ctx context.Context, rs capture.Ruleset) (string, error) {
	stamp := rs.Stamp()
	if known, ok := r.digests[stamp]; ok {
		return known, nil
	}
	reference, err := netfilter.Reference(ctx, nftables.Backend{}, rs)
	if err != nil {
		return "", err
	}
	if r.digests == nil || len(r.digests) >= MaxReferences {
		r.digests = map[string]string{}
	}
	r.digests[stamp] = digestOf(reference)
	return r.digests[stamp], nil
}

// digestVersion is incremented with every change of a digest's input, because digests of different
// versions can't be compared.
const digestVersion = "4:"

// digestOf returns the digest of a Dump, as a text for a file. Two Dumps have equal digests if they
// have no Diff. The digest omits comments, so a reworded comment does not change it.
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

// Comparable reports whether a digest has the current digestVersion, so that it can be compared with
// current digests.
func Comparable(digest string) bool { return strings.HasPrefix(digest, digestVersion) }
