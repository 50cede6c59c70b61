// SPDX-License-Identifier: Apache-2.0

// Package dump compares our rules, as a backend reads them from the kernel, with desired rules.
package dump

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
)

// Dump contains our rules as a backend reads them from the kernel, reduced to the parts that decide about
// packets. It omits handles, positions and counters. Comments, except the prefix of a Stamp, only label
// the rules in a Diff.
type Dump struct {
	Objects []Object
}

// Object is a table, a chain of a table, or a set of a table. Its Items are a chain's rules or a set's
// elements.
type Object struct {
	Name    string // "chain nat_OUTPUT"
	Content string
	KeyType string // type of a set's elements
	Items   []Item // rules in their order, or sorted elements
}

// Item is a rule or an element. Two items with the same content are equal, even if their comments
// differ.
type Item struct {
	Comment string // the comment of a rule
	Content string
}

// maxDifferences limits the number of lines of a Diff.
const maxDifferences = 20

// Diff returns a line for each difference between want and found. A missing or unexpected Object is one
// difference, whatever its Items. The order of rules is compared only if none is missing or unexpected.
// After maxDifferences lines, one more line counts the other differences.
func Diff(want, found Dump) []string {
	var d differences
	foundByName, wantByName := found.byName(), want.byName()
	for i := range want.Objects {
		w := &want.Objects[i]
		f := foundByName[w.Name]
		if f == nil {
			d.add("missing: ", "", w.Name)
			continue
		}
		if w.Content != f.Content {
			d.add("changed: ", "", w.Name)
		}
		d.compareItems(w, f)
	}
	for _, f := range found.Objects {
		if wantByName[f.Name] == nil {
			d.add("unexpected: ", "", f.Name)
		}
	}
	if d.more > 0 {
		d.lines = append(d.lines, fmt.Sprintf("... and %d more", d.more))
	}
	return d.lines
}

func (d Dump) byName() map[string]*Object {
	objects := make(map[string]*Object, len(d.Objects))
	for i := range d.Objects {
		objects[d.Objects[i].Name] = &d.Objects[i]
	}
	return objects
}

// differences collects the first lines of a Diff, and counts the other differences.
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

func (d *differences) compareItems(want, found *Object) {
	if slices.EqualFunc(want.Items, found.Items, func(a, b Item) bool { return a.Content == b.Content }) {
		return
	}
	missing, unexpected := surplus(want.Items, found.Items), surplus(found.Items, want.Items)
	if len(missing)+len(unexpected) == 0 {
		d.add("reordered: ", "rules", want.Name)
	}
	for _, m := range missing {
		d.addItem("missing: ", want, m)
	}
	for _, u := range unexpected {
		d.addItem("unexpected: ", found, u)
	}
}

func (d *differences) addItem(what string, of *Object, i Item) {
	if d.full() {
		d.more++ // without a label, because labels take time
		return
	}
	label := ruleLabel(i.Comment)
	if of.KeyType != "" {
		label = ElementLabel(of.KeyType, i.Content)
	}
	d.add(what, label, of.Name)
}

// surplus returns the items that occur more often in a than in b.
func surplus(a, b []Item) []Item {
	count := make(map[string]int, len(b))
	for _, i := range b {
		count[i.Content]++
	}
	var rest []Item
	for _, i := range a {
		if count[i.Content]--; count[i.Content] < 0 {
			rest = append(rest, i)
		}
	}
	return rest
}

func ruleLabel(comment string) string {
	if comment == "" {
		return "a rule without comment"
	}
	return fmt.Sprintf("rule %q", comment)
}

// ElementLabel returns an element's label in a Diff, from the set's type and the element's content. The
// kernel keeps a range as its first key and, unless its last key is the largest possible one, a second
// element: the key after its last one, with a flag.
func ElementLabel(keyType, content string) string {
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

func keyText(keyType, key []byte) string {
	const unreadable = "that can't be read"
	if len(keyType) != 4 {
		return unreadable
	}
	length := len(key)
	switch number := binary.BigEndian.Uint32(keyType); {
	case number == nfnetlink.KeyTypeInterface:
		return nfnetlink.Text(key)
	case number == nfnetlink.KeyTypePort && length >= 2:
		return fmt.Sprint(binary.BigEndian.Uint16(key))
	case (number == nfnetlink.KeyTypeUID || number == nfnetlink.KeyTypeGID) && length >= 4:
		return fmt.Sprint(binary.NativeEndian.Uint32(key))
	}
	address, ok := netip.AddrFromSlice(key)
	if !ok {
		return unreadable
	}
	return address.String()
}
