// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"fmt"
	"slices"

	"github.com/containernetworking/plugins/pkg/ns"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// Reference is what the kernel makes of a Ruleset: applied in a scratch
// namespace and read back, so that comparing is independent of how this
// kernel represents a rule.
func Reference(rs capture.Ruleset) (table Table, err error) {
	scratch, err := ns.TempNetNS()
	if err != nil {
		return Table{}, fmt.Errorf("creating a scratch namespace: %w", err)
	}
	defer scratch.Close()
	err = scratch.Do(func(ns.NetNS) error {
		if err := Apply(rs); err != nil {
			return fmt.Errorf("applying the rules in a scratch namespace: %w", err)
		}
		table, err = Dump()
		return err
	})
	return table, err
}

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
