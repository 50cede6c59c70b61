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
	reworded := chainOf("a", "1", "2")
	reworded.Items[1].Comment = "other words"
	for name, tt := range map[string]struct {
		other dump.Dump
		same  bool
	}{
		"the same":               {dump.Dump{Objects: []dump.Object{chainOf("a", "1", "2"), chainOf("b", "3"), set("x", "y")}}, true},
		"other words":            {dump.Dump{Objects: []dump.Object{reworded, chainOf("b", "3"), set("x", "y")}}, true},
		"another hook":           {dump.Dump{Objects: []dump.Object{moved, chainOf("b", "3"), set("x", "y")}}, false},
		"objects in other order": {dump.Dump{Objects: []dump.Object{set("x", "y"), chainOf("b", "3"), chainOf("a", "1", "2")}}, true},
		"a rule fewer":           {dump.Dump{Objects: []dump.Object{chainOf("a", "1"), chainOf("b", "3"), set("x", "y")}}, false},
		"rules in other order":   {dump.Dump{Objects: []dump.Object{chainOf("a", "2", "1"), chainOf("b", "3"), set("x", "y")}}, false},
		"a rule elsewhere":       {dump.Dump{Objects: []dump.Object{chainOf("a", "1"), chainOf("b", "2", "3"), set("x", "y")}}, false},
		"a rule joined":          {dump.Dump{Objects: []dump.Object{chainOf("a", "12"), chainOf("b", "3"), set("x", "y")}}, false},
		"no chain":               {dump.Dump{Objects: []dump.Object{chainOf("a", "1", "2"), set("x", "y")}}, false},
		"an element more":        {dump.Dump{Objects: []dump.Object{chainOf("a", "1", "2"), chainOf("b", "3"), set("x", "y", "z")}}, false},
		"another element":        {dump.Dump{Objects: []dump.Object{chainOf("a", "1", "2"), chainOf("b", "3"), set("x", "z")}}, false},
		"no set":                 {dump.Dump{Objects: []dump.Object{chainOf("a", "1", "2"), chainOf("b", "3")}}, false},
	} {
		got := digestOf(tt.other)
		if (got == digestOf(base)) != tt.same {
			t.Errorf("%s: the same digest: %t", name, !tt.same)
		}
		if differs := len(dump.Diff(base, tt.other)) > 0; differs != (got != digestOf(base)) {
			t.Errorf("%s: Diff and Digest do not agree: %q", name, dump.Diff(base, tt.other))
		}
	}
}

// chainOf is a chain whose rules are words; a word is both comment and content.
func chainOf(name string, rules ...string) dump.Object {
	o := dump.Object{Name: "chain " + name, Content: "hook"}
	for _, rule := range rules {
		o.Items = append(o.Items, dump.Item{Comment: rule, Content: rule})
	}
	return o
}

// TestReferences expects rules with sets of every type to have the digest of their
// reference, and another one where an element is missing.
func TestReferences(t *testing.T) {
	t.Parallel()
	host := lab.StartHost(t)
	rs := sample.LongLists()
	sample.Apply(t, host, rs)
	var references References
	want, err := references.Digest(t.Context(), rs)
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
