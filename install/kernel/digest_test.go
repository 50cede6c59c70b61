// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/lab/sample"
	"github.com/capture-cni/capture-cni/plugin/dump"
)

// TestDigest expects equal digests for Dumps without a Diff, and different ones for others.
func TestDigest(t *testing.T) {
	t.Parallel()
	set := func(elements ...string) dump.Object {
		o := dump.Object{Name: "set s", KeyType: "type"}
		for _, element := range elements {
			o.Items = append(o.Items, dump.Item{Content: element})
		}
		return o
	}
	base := dump.Dump{Objects: []dump.Object{chainOf("a", "1", "2"), chainOf("b", "3"), set("x", "y")}}
	moved := chainOf("a", "1", "2")
	moved.Content = "another hook"
	for name, tt := range map[string]struct {
		other           dump.Dump
		shape, elements bool // are the same
	}{
		"the same":               {dump.Dump{Objects: []dump.Object{chainOf("a", "1", "2"), chainOf("b", "3"), set("x", "y")}}, true, true},
		"another hook":           {dump.Dump{Objects: []dump.Object{moved, chainOf("b", "3"), set("x", "y")}}, false, true},
		"objects in other order": {dump.Dump{Objects: []dump.Object{set("x", "y"), chainOf("b", "3"), chainOf("a", "1", "2")}}, true, true},
		"a rule fewer":           {dump.Dump{Objects: []dump.Object{chainOf("a", "1"), chainOf("b", "3"), set("x", "y")}}, false, true},
		"rules in other order":   {dump.Dump{Objects: []dump.Object{chainOf("a", "2", "1"), chainOf("b", "3"), set("x", "y")}}, false, true},
		"a rule elsewhere":       {dump.Dump{Objects: []dump.Object{chainOf("a", "1"), chainOf("b", "2", "3"), set("x", "y")}}, false, true},
		"a rule joined":          {dump.Dump{Objects: []dump.Object{chainOf("a", "12"), chainOf("b", "3"), set("x", "y")}}, false, true},
		"no chain":               {dump.Dump{Objects: []dump.Object{chainOf("a", "1", "2"), set("x", "y")}}, false, true},
		"an element more":        {dump.Dump{Objects: []dump.Object{chainOf("a", "1", "2"), chainOf("b", "3"), set("x", "y", "z")}}, true, false},
		"another element":        {dump.Dump{Objects: []dump.Object{chainOf("a", "1", "2"), chainOf("b", "3"), set("x", "z")}}, true, false},
		"no set":                 {dump.Dump{Objects: []dump.Object{chainOf("a", "1", "2"), chainOf("b", "3")}}, false, false},
	} {
		got := digestOf(tt.other)
		if (got.shape == digestOf(base).shape) != tt.shape || (got.elements == digestOf(base).elements) != tt.elements {
			t.Errorf("%s: same shape %t, same elements %t", name, !tt.shape, !tt.elements)
		}
		if differs := len(dump.Diff(base, tt.other)) > 0; differs != (got != digestOf(base)) {
			t.Errorf("%s: Diff and Digest do not agree: %q", name, dump.Diff(base, tt.other))
		}
	}
}

// chainOf is a chain whose rules are words; a word is both label and content.
func chainOf(name string, rules ...string) dump.Object {
	o := dump.Object{Name: "chain " + name, Content: "hook"}
	for _, rule := range rules {
		o.Items = append(o.Items, dump.Item{Label: rule, Content: rule})
	}
	return o
}

// TestExpectedDigest expects of the kernel the digest that is computed for sets of every
// type, and another one where an element is missing.
func TestExpectedDigest(t *testing.T) {
	t.Parallel()
	host := lab.StartHost(t)
	rs := sample.LongLists()
	sample.Apply(t, host, rs)
	var references References
	want, err := references.of(t.Context(), rs)
	if err != nil {
		t.Fatal(err)
	}
	if digestOf(sample.Dump(t, host)) != want {
		t.Error("the kernel's rules have another digest")
	}
	host.Load(t, "delete element inet capture-cni exclude_interfaces { eth7 }")
	if digestOf(sample.Dump(t, host)) == want {
		t.Error("a missing element does not change the digest")
	}
}
