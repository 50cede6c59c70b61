// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/dump"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
	"github.com/capture-cni/capture-cni/plugin/nftables"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

// digest is a hash of a Dump, by which two Dumps are compared.
type digest struct {
	shape    [sha256.Size]byte // all but elements and stamp
	elements [sha256.Size]byte // of all sets
	stamp    string
}

// digestOf returns the digest of a Dump. Dumps without a Diff have equal ones.
func digestOf(t dump.Dump) digest {
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
	return digest{shape.Sum(), elements.Sum(), string(stamp)}
}

// expectedDigest returns the expected digest of a Ruleset with this shape: it assumes
// that the kernel lists elements of sets as NFTables adds them. A later kernel
// may list them differently, so a digest that differs is no proof of drift.
func expectedDigest(shape [sha256.Size]byte, rs capture.Ruleset) digest {
	var all, stamp dump.Sum
	sets := slices.SortedFunc(slices.Values(rs.Sets()), func(a, b capture.Set) int { return cmp.Compare(a.Name, b.Name) })
	for _, set := range sets {
		items := make([]dump.Item, 0, 2*len(set.Elements))
		for key, endsRange := range nftables.Elements(set.Type, set.Elements) {
			items = append(items, dump.Item{Content: dump.ElementContent(key, elementFlags(endsRange))})
		}
		dump.SortItems(items)
		all.Add("set " + set.Name)
		addItems(&all, items)
	}
	stamp.Add(dump.RuleLabel(rs.Stamp()))
	return digest{shape, all.Sum(), string(stamp)}
}

// digestVersion grows with every change of what a digest covers: digests of
// different versions are not comparable.
const digestVersion = "2:"

// String returns the digest as text for a file.
func (d digest) String() string {
	var all dump.Sum
	all.Add(string(d.shape[:]), string(d.elements[:]), d.stamp)
	total := all.Sum()
	return digestVersion + hex.EncodeToString(total[:])
}

// Comparable reports whether a digest's text is of this version.
func Comparable(digest string) bool { return strings.HasPrefix(digest, digestVersion) }

// elementFlags returns the flags as the kernel lists them; it leaves out flags of zero.
func elementFlags(isEnd bool) []byte {
	if !isEnd {
		return nil
	}
	return binary.BigEndian.AppendUint32(nil, unix.NFT_SET_ELEM_INTERVAL_END)
}

// Digest returns the digest of our rules in the namespace, as text.
func Digest(ctx context.Context, n *podnet.Namespace, asked config.Backend) (string, error) {
	return podnet.Read(n, func() (string, error) {
		backend, err := netfilter.Find(ctx, asked)
		if err != nil {
			return "", err
		}
		found, err := backend.Dump(ctx)
		return digestOf(found).String(), err
	})
}

func addItems(s *dump.Sum, items []dump.Item) {
	*s = binary.AppendUvarint(*s, uint64(len(items)))
	for _, i := range items {
		s.Add(i.Label, i.Content)
	}
}
