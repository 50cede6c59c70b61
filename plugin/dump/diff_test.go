// SPDX-License-Identifier: Apache-2.0

package dump

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

// ChainOf is a chain whose rules are words; a word is both label and content.
func ChainOf(name string, rules ...string) Object {
	o := Object{Name: "chain " + name, Content: "hook"}
	for _, rule := range rules {
		o.Items = append(o.Items, Item{rule, rule})
	}
	return o
}

func TestDiff(t *testing.T) {
	t.Parallel()
	changed := ChainOf("a", "1", "2")
	changed.Content = "another hook"
	relabelled := ChainOf("a", "1", "2")
	relabelled.Items[1].Content = "otherwise"
	for _, test := range []struct {
		name        string
		want, found []Object
		lines       []string
	}{
		{"nothing", nil, nil, nil},
		{"the same", []Object{ChainOf("a", "1", "2")}, []Object{ChainOf("a", "1", "2")}, nil},
		{"chains in another order", []Object{ChainOf("a", "1"), ChainOf("b")}, []Object{ChainOf("b"), ChainOf("a", "1")}, nil},
		{"all gone", []Object{ChainOf("a", "1"), ChainOf("b")}, nil, []string{"missing: chain a", "missing: chain b"}},
		{"one more", nil, []Object{ChainOf("a", "1")}, []string{"unexpected: chain a"}},
		{"changed", []Object{ChainOf("a", "1", "2")}, []Object{changed}, []string{"changed: chain a"}},
		{"rule gone", []Object{ChainOf("a", "1", "2")}, []Object{ChainOf("a", "2")}, []string{"missing: 1 of chain a"}},
		{"rule more", []Object{ChainOf("a", "1")}, []Object{ChainOf("a", "1", "2")}, []string{"unexpected: 2 of chain a"}},
		{"rule twice", []Object{ChainOf("a", "1", "2")}, []Object{ChainOf("a", "1", "1", "2")}, []string{"unexpected: 1 of chain a"}},
		{"rule once", []Object{ChainOf("a", "1", "1")}, []Object{ChainOf("a", "1")}, []string{"missing: 1 of chain a"}},
		{"other order", []Object{ChainOf("a", "1", "2")}, []Object{ChainOf("a", "2", "1")}, []string{"reordered: rules of chain a"}},
		{"rule changed", []Object{ChainOf("a", "1", "2")}, []Object{relabelled}, []string{"missing: 2 of chain a", "unexpected: 2 of chain a"}},
		{"hook and rule", []Object{ChainOf("a", "1", "2", "3")}, []Object{changed}, []string{"changed: chain a", "missing: 3 of chain a"}},
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
	got := Diff(Dump{[]Object{ChainOf("a", rules...)}}, Dump{[]Object{ChainOf("a", rules[:100]...)}})
	if len(got) != maxDifferences+1 || got[0] != "missing: 100 of chain a" || got[maxDifferences] != "... and 49880 more" {
		t.Errorf("got %q", got)
	}
}

// FuzzItem parses rules that no kernel sends today.
func FuzzItem(f *testing.F) {
	f.Add([]byte{12, 0, 1, 0, 8, 0, 1, 0, 'l', 'o', 0, 0}, []byte{1})
	f.Add([]byte{4, 0, 1, 0x80, 0}, []byte{1, 2, 3, 4})
	f.Fuzz(func(t *testing.T, data, key []byte) {
		item, err := (Labels{}).Item("", data)
		if err == nil && item.Label == "" {
			t.Error("a rule without a label")
		}
		label := ElementLabel(string(key), ElementContent(data, key))
		if !strings.HasPrefix(label, "element ") && !strings.HasPrefix(label, "the end of a range before ") {
			t.Errorf("label %q", label)
		}
	})
}
