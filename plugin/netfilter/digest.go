// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// Digest is a hash of a Dump, by which two Dumps are compared.
type Digest struct {
	Shape    [sha256.Size]byte // all but elements and stamp
	Elements [sha256.Size]byte // of all sets
	Stamp    string
}

// Digest returns the digest of the Dump. Dumps without a Diff have equal ones.
func (t Dump) Digest() Digest {
	objects := slices.SortedFunc(slices.Values(t.objects), func(a, b object) int { return cmp.Compare(a.name, b.name) })
	var shape, elements, stamp sum
	for _, o := range objects {
		shape.add(o.name, o.content)
		switch {
		case o.keyType != "":
			elements.add(o.name)
			elements.addItems(o.items)
		case o.name == "chain "+capture.StampChain:
			for _, i := range o.items {
				shape.add(i.content)
				stamp.add(i.label)
			}
		default:
			shape.addItems(o.items)
		}
	}
	return Digest{shape.sum(), elements.sum(), string(stamp)}
}

// DigestOf returns the expected digest of a Ruleset with this shape: it assumes
// that the kernel lists elements of sets as NFTables adds them. A later kernel
// may list them differently, so a digest that differs is no proof of drift.
func DigestOf(shape [sha256.Size]byte, rs capture.Ruleset) Digest {
	var all, stamp sum
	sets := slices.SortedFunc(slices.Values(rs.Sets()), func(a, b capture.Set) int { return cmp.Compare(a.Name, b.Name) })
	for _, set := range sets {
		items := make([]item, 0, 2*len(set.Elements))
		for key, endsRange := range elements(set.Type, set.Elements) {
			items = append(items, item{content: elementContent(key, elementFlags(endsRange))})
		}
		sortItems(items)
		all.add("set " + set.Name)
		all.addItems(items)
	}
	stamp.add(ruleLabel(rs.Stamp()))
	return Digest{shape, all.sum(), string(stamp)}
}

// sum is an unambiguous encoding of texts to be hashed: each text follows its length.
type sum []byte

func (s *sum) add(texts ...string) {
	for _, text := range texts {
		*s = append(binary.AppendUvarint(*s, uint64(len(text))), text...)
	}
}

func (s *sum) addItems(items []item) {
	*s = binary.AppendUvarint(*s, uint64(len(items)))
	for _, i := range items {
		s.add(i.label, i.content)
	}
}

func (s *sum) sum() [sha256.Size]byte { return sha256.Sum256(*s) }

// digestVersion grows with every change of what a Digest covers: digests of
// different versions are not comparable.
const digestVersion = "2:"

// String returns the digest as text for a file.
func (d Digest) String() string {
	var all sum
	all.add(string(d.Shape[:]), string(d.Elements[:]), d.Stamp)
	total := all.sum()
	return digestVersion + hex.EncodeToString(total[:])
}

// Comparable reports whether a digest's text is of this version.
func Comparable(digest string) bool { return strings.HasPrefix(digest, digestVersion) }
