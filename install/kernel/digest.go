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
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

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
