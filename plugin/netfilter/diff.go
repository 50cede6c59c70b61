// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"fmt"
	"slices"
)

// Table is what the kernel holds of ours, reduced to what decides about
// packets: handles, positions and counters are left out.
type Table struct {
	objects []object
}

// object is a table, one of its chains or one of its sets.
type object struct {
	name    string // "chain nat_OUTPUT"
	content string
	items   []item // rules in their order, elements sorted
}

// item is a rule or an element.
type item struct{ label, content string }

// Diff says, one line each, how found differs from want.
func Diff(want, found Table) []string {
	var lines []string
	for _, w := range want.objects {
		f, ok := found.object(w.name)
		switch {
		case !ok:
			lines = append(lines, "missing: "+w.name)
			continue
		case w.content != f.content:
			lines = append(lines, "changed: "+w.name)
		}
		lines = append(lines, diffItems(w, f)...)
	}
	for _, f := range found.objects {
		if _, ok := want.object(f.name); !ok {
			lines = append(lines, "unexpected: "+f.name)
		}
	}
	return lines
}

func (t Table) object(name string) (object, bool) {
	i := slices.IndexFunc(t.objects, func(o object) bool { return o.name == name })
	if i < 0 {
		return object{}, false
	}
	return t.objects[i], true
}

// diffItems compares the rules of a chain or the elements of a set.
func diffItems(want, found object) []string {
	missing, unexpected := without(want.items, found.items), without(found.items, want.items)
	if len(missing)+len(unexpected) == 0 {
		if !slices.Equal(want.items, found.items) {
			return []string{"reordered: rules of " + want.name}
		}
		return nil
	}
	var lines []string
	for _, m := range missing {
		lines = append(lines, fmt.Sprintf("missing: %s of %s", m.label, want.name))
	}
	for _, u := range unexpected {
		lines = append(lines, fmt.Sprintf("unexpected: %s of %s", u.label, want.name))
	}
	return lines
}

// without gives the items of a that b has fewer of.
func without(a, b []item) []item {
	count := map[item]int{}
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
