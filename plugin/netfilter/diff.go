// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// Dump holds our rules as the kernel holds them, reduced to what decides about
// packets: it leaves out handles, positions and counters.
type Dump struct {
	objects []object
}

// object is a table, one of its chains or one of its sets.
type object struct {
	name    string // "chain nat_OUTPUT"
	content string
	keyType string // of a set's elements
	items   []item // rules in their order, elements sorted
}

// item is a rule or an element.
type item struct {
	label   string // of a rule, by its comment; see elementLabel for an element's
	content string
}

// maxDifferences bounds the lines of a Diff; the rest is counted.
const maxDifferences = 20

// Diff returns how found differs from want, a line for each difference. After
// the first twenty, one line counts the rest.
func Diff(want, found Dump) []string {
	var d differences
	foundByName, wantByName := found.byName(), want.byName()
	for i := range want.objects {
		w := &want.objects[i]
		f := foundByName[w.name]
		if f == nil {
			d.add("missing: ", "", w.name)
			continue
		}
		if w.content != f.content {
			d.add("changed: ", "", w.name)
		}
		d.compareItems(w, f)
	}
	for _, f := range found.objects {
		if wantByName[f.name] == nil {
			d.add("unexpected: ", "", f.name)
		}
	}
	if d.more > 0 {
		d.lines = append(d.lines, fmt.Sprintf("... and %d more", d.more))
	}
	return d.lines
}

func (t Dump) byName() map[string]*object {
	objects := make(map[string]*object, len(t.objects))
	for i := range t.objects {
		objects[t.objects[i].name] = &t.objects[i]
	}
	return objects
}

// differences collects the first lines of a Diff, and counts the rest.
type differences struct {
	lines []string
	more  int
}

func (d *differences) full() bool { return len(d.lines) >= maxDifferences }

func (d *differences) add(what, part, of string) {
	if d.full() {
		d.more++
		return
	}
	if part != "" {
		part += " of "
	}
	d.lines = append(d.lines, what+part+of)
}

// compareItems compares the rules of a chain or the elements of a set.
func (d *differences) compareItems(want, found *object) {
	if slices.Equal(want.items, found.items) {
		return
	}
	missing, unexpected := surplus(want.items, found.items), surplus(found.items, want.items)
	if len(missing)+len(unexpected) == 0 {
		d.add("reordered: ", "rules", want.name)
	}
	for _, m := range missing {
		d.addItem("missing: ", want, m)
	}
	for _, u := range unexpected {
		d.addItem("unexpected: ", found, u)
	}
}

func (d *differences) addItem(what string, of *object, i item) {
	if d.full() {
		d.more++ // without its label, which costs time
		return
	}
	label := i.label
	if of.keyType != "" {
		label = elementLabel(of.keyType, i.content)
	}
	d.add(what, label, of.name)
}

// surplus returns the items that a has more of than b.
func surplus(a, b []item) []item {
	count := make(map[item]int, len(b))
	for _, i := range b {
		count[i]++
	}
	var rest []item
	for _, i := range a {
		if count[i]--; count[i] < 0 {
			rest = append(rest, i)
		}
	}
	return rest
}

// ruleLabel names a rule in a Diff by its comment.
func ruleLabel(comment string) string {
	if comment == "" {
		return "a rule without comment"
	}
	return fmt.Sprintf("rule %q", comment)
}

// elementLabel names an element in a Diff by its set's type and its content. The
// kernel keeps a range as two elements: its first key, and the key after its
// last, with a flag.
func elementLabel(keyType, content string) string {
	if len(content) < flagsLength {
		return "element that can't be read"
	}
	key, flags := []byte(content[:len(content)-flagsLength]), []byte(content[len(content)-flagsLength:])
	label := "element "
	if binary.BigEndian.Uint32(flags)&unix.NFT_SET_ELEM_INTERVAL_END != 0 {
		label = "the end of a range before "
	}
	return label + keyText([]byte(keyType), key)
}

// keyText returns a key as text, by its set's type.
func keyText(keyType, key []byte) string {
	const unreadable = "that can't be read"
	if len(keyType) != 4 {
		return unreadable
	}
	length := len(key)
	switch magic := binary.BigEndian.Uint32(keyType); {
	case magic == nftables.TypeIFName.GetNFTMagic():
		return text(key)
	case magic == nftables.TypeInetService.GetNFTMagic() && length >= 2:
		return fmt.Sprint(binary.BigEndian.Uint16(key))
	case (magic == nftables.TypeUID.GetNFTMagic() || magic == nftables.TypeGID.GetNFTMagic()) && length >= 4:
		return fmt.Sprint(binary.NativeEndian.Uint32(key))
	}
	address, ok := netip.AddrFromSlice(key)
	if !ok {
		return unreadable
	}
	return address.String()
}
