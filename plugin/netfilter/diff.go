// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"fmt"
	"slices"
)

// Dump is what the kernel holds of ours, reduced to what decides about
// packets: handles, positions and counters are left out.
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
	label   string // of a rule, by its comment; an element's is spelled where it is needed
	content string
}

// maxDifferences is how many lines a Diff has at most, before it counts.
const maxDifferences = 20

// Diff says, one line each, how found differs from want. After the first
// twenty differences it says how many more there are.
func Diff(want, found Dump) []string {
	var d differences
	there, wanted := found.byName(), want.byName()
	for i := range want.objects {
		w := &want.objects[i]
		f := there[w.name]
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
		if wanted[f.name] == nil {
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

// differences are lines for people to read: the first ones, and a count.
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
	missing, unexpected := without(want.items, found.items), without(found.items, want.items)
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
		d.more++ // its label would be spelled for nothing
		return
	}
	label := i.label
	if of.keyType != "" {
		label = elementLabel(of.keyType, i.content)
	}
	d.add(what, label, of.name)
}

// without gives the items of a that b has fewer of.
func without(a, b []item) []item {
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
