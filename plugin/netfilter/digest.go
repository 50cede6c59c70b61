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

// Digest stands for a Table where only that two are the same is of interest.
type Digest struct {
	Shape    [sha256.Size]byte // all but the rest
	Elements [sha256.Size]byte // of all sets
	Stamp    string
}

// Digest sums the Table up. Tables without a Diff have the same one.
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

// DigestOf is that of a Ruleset with this shape, where the kernel holds elements
// of sets as NFTables adds them. A kernel may come that shows them otherwise:
// that it differs from a Table's proves nothing yet.
func DigestOf(shape [sha256.Size]byte, rs capture.Ruleset) Digest {
	var all, stamp sum
	sets := slices.SortedFunc(slices.Values(rs.Sets()), func(a, b capture.Set) int { return cmp.Compare(a.Name, b.Name) })
	for _, set := range sets {
		encoded := elements(set)
		items := make([]item, len(encoded))
		for i, element := range encoded {
			items[i] = item{content: elementContent(element.Key, elementFlags(element.IntervalEnd))}
		}
		sortItems(items)
		all.add("set " + set.Name)
		all.addItems(items)
	}
	stamp.add(ruleLabel(rs.Stamp()))
	return Digest{shape, all.sum(), string(stamp)}
}

// sum gathers texts so that none can be taken for two others.
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

// digestVersion grows with every change of what a Digest sums up: those of
// different versions can't be compared.
const digestVersion = "2:"

// String spells a digest for a file.
func (d Digest) String() string {
	var all sum
	all.add(string(d.Shape[:]), string(d.Elements[:]), d.Stamp)
	total := all.sum()
	return digestVersion + hex.EncodeToString(total[:])
}

// Comparable reports whether a spelled digest is one that this program could
// have made.
func Comparable(digest string) bool { return strings.HasPrefix(digest, digestVersion) }
