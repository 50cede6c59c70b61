// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"slices"
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
		if got := Diff(Table{test.want}, Table{test.found}); !slices.Equal(got, test.lines) {
			t.Errorf("%s: got %q, want %q", test.name, got, test.lines)
		}
	}
}

// FuzzParse takes what no kernel would send for what a newer one might.
func FuzzParse(f *testing.F) {
	f.Add([]byte{12, 0, 1, 0, 8, 0, 1, 0, 'l', 'o', 0, 0})
	f.Add([]byte{200, 0, 1, 0})
	f.Add([]byte{4, 0, 1, 0x80, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		spelled, err := parseExpressions(data)
		if err != nil && spelled != "" {
			t.Errorf("both %q and %v", spelled, err)
		}
		label := elementLabel(attributes{4: data}, attributes{1: data, 3: data})
		if !strings.HasPrefix(label, "element ") && !strings.HasPrefix(label, "the end of a range before ") {
			t.Errorf("label %q", label)
		}
	})
}
