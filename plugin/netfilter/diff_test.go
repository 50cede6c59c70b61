// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

// chainOf is a chain whose rules are words; a word is both label and content.
func chainOf(name string, rules ...string) object {
	o := object{name: "chain " + name, content: "hook"}
	for _, rule := range rules {
		o.items = append(o.items, item{rule, rule})
	}
	return o
}

func TestDiff(t *testing.T) {
	t.Parallel()
	changed := chainOf("a", "1", "2")
	changed.content = "another hook"
	relabelled := chainOf("a", "1", "2")
	relabelled.items[1].content = "otherwise"
	for _, test := range []struct {
		name        string
		want, found []object
		lines       []string
	}{
		{"nothing", nil, nil, nil},
		{"the same", []object{chainOf("a", "1", "2")}, []object{chainOf("a", "1", "2")}, nil},
		{"chains in another order", []object{chainOf("a", "1"), chainOf("b")}, []object{chainOf("b"), chainOf("a", "1")}, nil},
		{"all gone", []object{chainOf("a", "1"), chainOf("b")}, nil, []string{"missing: chain a", "missing: chain b"}},
		{"one more", nil, []object{chainOf("a", "1")}, []string{"unexpected: chain a"}},
		{"changed", []object{chainOf("a", "1", "2")}, []object{changed}, []string{"changed: chain a"}},
		{"rule gone", []object{chainOf("a", "1", "2")}, []object{chainOf("a", "2")}, []string{"missing: 1 of chain a"}},
		{"rule more", []object{chainOf("a", "1")}, []object{chainOf("a", "1", "2")}, []string{"unexpected: 2 of chain a"}},
		{"rule twice", []object{chainOf("a", "1", "2")}, []object{chainOf("a", "1", "1", "2")}, []string{"unexpected: 1 of chain a"}},
		{"rule once", []object{chainOf("a", "1", "1")}, []object{chainOf("a", "1")}, []string{"missing: 1 of chain a"}},
		{"other order", []object{chainOf("a", "1", "2")}, []object{chainOf("a", "2", "1")}, []string{"reordered: rules of chain a"}},
		{"rule changed", []object{chainOf("a", "1", "2")}, []object{relabelled}, []string{"missing: 2 of chain a", "unexpected: 2 of chain a"}},
		{"hook and rule", []object{chainOf("a", "1", "2", "3")}, []object{changed}, []string{"changed: chain a", "missing: 3 of chain a"}},
	} {
		if got := Diff(Dump{test.want}, Dump{test.found}); !slices.Equal(got, test.lines) {
			t.Errorf("%s: got %q, want %q", test.name, got, test.lines)
		}
	}
}

// TestDiffIsBounded expects a count of the differences that are not listed.
func TestDiffIsBounded(t *testing.T) {
	t.Parallel()
	var rules []string
	for i := range 50_000 {
		rules = append(rules, strconv.Itoa(i))
	}
	got := Diff(Dump{[]object{chainOf("a", rules...)}}, Dump{[]object{chainOf("a", rules[:100]...)}})
	if len(got) != maxDifferences+1 || got[0] != "missing: 100 of chain a" || got[maxDifferences] != "... and 49880 more" {
		t.Errorf("got %q", got)
	}
}

// TestDigest expects equal digests for Dumps without a Diff, and different ones for others.
func TestDigest(t *testing.T) {
	t.Parallel()
	set := func(elements ...string) object {
		o := object{name: "set s", keyType: "type"}
		for _, element := range elements {
			o.items = append(o.items, item{content: element})
		}
		return o
	}
	base := Dump{[]object{chainOf("a", "1", "2"), chainOf("b", "3"), set("x", "y")}}
	moved := chainOf("a", "1", "2")
	moved.content = "another hook"
	for name, tt := range map[string]struct {
		other           Dump
		shape, elements bool // are the same
	}{
		"the same":               {Dump{[]object{chainOf("a", "1", "2"), chainOf("b", "3"), set("x", "y")}}, true, true},
		"another hook":           {Dump{[]object{moved, chainOf("b", "3"), set("x", "y")}}, false, true},
		"objects in other order": {Dump{[]object{set("x", "y"), chainOf("b", "3"), chainOf("a", "1", "2")}}, true, true},
		"a rule fewer":           {Dump{[]object{chainOf("a", "1"), chainOf("b", "3"), set("x", "y")}}, false, true},
		"rules in other order":   {Dump{[]object{chainOf("a", "2", "1"), chainOf("b", "3"), set("x", "y")}}, false, true},
		"a rule elsewhere":       {Dump{[]object{chainOf("a", "1"), chainOf("b", "2", "3"), set("x", "y")}}, false, true},
		"a rule joined":          {Dump{[]object{chainOf("a", "12"), chainOf("b", "3"), set("x", "y")}}, false, true},
		"no chain":               {Dump{[]object{chainOf("a", "1", "2"), set("x", "y")}}, false, true},
		"an element more":        {Dump{[]object{chainOf("a", "1", "2"), chainOf("b", "3"), set("x", "y", "z")}}, true, false},
		"another element":        {Dump{[]object{chainOf("a", "1", "2"), chainOf("b", "3"), set("x", "z")}}, true, false},
		"no set":                 {Dump{[]object{chainOf("a", "1", "2"), chainOf("b", "3")}}, false, false},
	} {
		got := tt.other.Digest()
		if (got.Shape == base.Digest().Shape) != tt.shape || (got.Elements == base.Digest().Elements) != tt.elements {
			t.Errorf("%s: same shape %t, same elements %t", name, !tt.shape, !tt.elements)
		}
		if differs := len(Diff(base, tt.other)) > 0; differs != (got != base.Digest()) {
			t.Errorf("%s: Diff and Digest do not agree: %q", name, Diff(base, tt.other))
		}
	}
}

// FuzzParse parses messages that no kernel sends today.
func FuzzParse(f *testing.F) {
	f.Add([]byte{12, 0, 1, 0, 8, 0, 1, 0, 'l', 'o', 0, 0})
	f.Add([]byte{200, 0, 1, 0})
	f.Add([]byte{4, 0, 1, 0x80, 0})
	f.Add([]byte{0, 0, 1, 0, 4, 0, 1, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		seen := 0
		err := eachAttribute(data, func(_ uint16, content []byte) error {
			seen += 4 + len(content)
			return nil
		})
		if seen > len(data) || err == nil && seen+3 < len(data) && seen == 0 {
			t.Errorf("%d of %d bytes were read: %v", seen, len(data), err)
		}
		if _, err := (labels{}).item("", data); err == nil && len(data) > 0 && seen == 0 {
			t.Error("expressions without an attribute are no error")
		}
		items, err := parseElements(data)
		for _, i := range items {
			label := elementLabel(string(data), i.content)
			if !strings.HasPrefix(label, "element ") && !strings.HasPrefix(label, "the end of a range before ") {
				t.Errorf("label %q, %v", label, err)
			}
		}
		if message, err := parseMessage(data); err == nil && len(message[familyOf]) != 1 {
			t.Error("a message without a family")
		}
		ruleComment(attributes{4: data, 7: data})
		leadsToOurs(data)
	})
}
