// SPDX-License-Identifier: Apache-2.0

package dump

import (
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
)

// ChainOf is a chain whose rules are words; a word is both comment and content.
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
	otherwise, reworded := ChainOf("a", "1", "2"), ChainOf("a", "1", "2")
	otherwise.Items[1].Content = "otherwise"
	reworded.Items[1].Comment = "other words"
	ports := Object{Name: "set ports", KeyType: magic(nftables.TypeInetService), Items: []Item{{"", "\x00\x50\x00\x00\x00\x00"}}}
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
		{"rule gone", []Object{ChainOf("a", "1", "2")}, []Object{ChainOf("a", "2")}, []string{"missing: rule \"1\" of chain a"}},
		{"rule more", []Object{ChainOf("a", "1")}, []Object{ChainOf("a", "1", "2")}, []string{"unexpected: rule \"2\" of chain a"}},
		{"rule twice", []Object{ChainOf("a", "1", "2")}, []Object{ChainOf("a", "1", "1", "2")}, []string{"unexpected: rule \"1\" of chain a"}},
		{"rule once", []Object{ChainOf("a", "1", "1")}, []Object{ChainOf("a", "1")}, []string{"missing: rule \"1\" of chain a"}},
		{"other order", []Object{ChainOf("a", "1", "2")}, []Object{ChainOf("a", "2", "1")}, []string{"reordered: rules of chain a"}},
		{"rule changed", []Object{ChainOf("a", "1", "2")}, []Object{otherwise}, []string{"missing: rule \"2\" of chain a", "unexpected: rule \"2\" of chain a"}},
		{"other words", []Object{ChainOf("a", "1", "2")}, []Object{reworded}, nil},
		{"element gone", []Object{ports}, []Object{{Name: ports.Name, KeyType: ports.KeyType}}, []string{"missing: element 80 of set ports"}},
		{"hook and rule", []Object{ChainOf("a", "1", "2", "3")}, []Object{changed}, []string{"changed: chain a", "missing: rule \"3\" of chain a"}},
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
	var chains []Object
	for i := range 50_000 {
		rules, chains = append(rules, strconv.Itoa(i)), append(chains, Object{Name: strconv.Itoa(i)})
	}
	got := Diff(Dump{[]Object{ChainOf("a", rules...)}}, Dump{[]Object{ChainOf("a", rules[:100]...)}})
	if len(got) != maxDifferences+1 || got[0] != `missing: rule "100" of chain a` || got[maxDifferences] != "... and 49880 more" {
		t.Errorf("got %q", got)
	}
	if got := Diff(Dump{chains}, Dump{}); len(got) != maxDifferences+1 || got[maxDifferences] != "... and 49980 more" {
		t.Errorf("got %q", got)
	}
}

func magic(of nftables.SetDatatype) string {
	return string(binary.BigEndian.AppendUint32(nil, of.GetNFTMagic()))
}

// TestElementLabel expects keys as text, by the type of their set.
func TestElementLabel(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ keyType, key, flags, label string }{
		{magic(nftables.TypeIFName), "eth0\x00\x00\x00\x00", "", "element eth0"},
		{magic(nftables.TypeInetService), "\x3a\x99", "", "element 15001"},
		{magic(nftables.TypeInetService), "\x3a\x9a", "\x00\x00\x00\x01", "the end of a range before 15002"},
		{magic(nftables.TypeInetService), "\x3a", "", "element that can't be read"},
		{magic(nftables.TypeUID), string(binary.NativeEndian.AppendUint32(nil, 1337)), "", "element 1337"},
		{magic(nftables.TypeGID), string(binary.NativeEndian.AppendUint32(nil, 1338)), "", "element 1338"},
		{magic(nftables.TypeGID), "\x01\x02\x03", "", "element that can't be read"},
		{magic(nftables.TypeIPAddr), "\x0a\x00\x00\x01", "", "element 10.0.0.1"},
		{magic(nftables.TypeIP6Addr), "\xfd" + strings.Repeat("\x00", 14) + "\x01", "", "element fd00::1"},
		{magic(nftables.TypeIPAddr), "\x0a\x00", "", "element that can't be read"},
		{magic(nftables.TypeIFName), "", "", "element "},
		{"ip", "\x0a\x00\x00\x01", "", "element that can't be read"},
	} {
		if got := ElementLabel(tt.keyType, ElementContent([]byte(tt.key), []byte(tt.flags))); got != tt.label {
			t.Errorf("%q of type %q: got %q, want %q", tt.key, tt.keyType, got, tt.label)
		}
	}
	if got := ElementLabel(magic(nftables.TypeIPAddr), "abc"); got != "element that can't be read" {
		t.Errorf("an element without flags: got %q", got)
	}
}

// TestParse expects equal contents of equal expressions only. Of comments only whether they are
// stamps counts, and counters do not count.
func TestParse(t *testing.T) {
	t.Parallel()
	expression := func(name, data string) []byte {
		var b nfnetlink.Batch
		b.Nested(unix.NFTA_LIST_ELEM, func() {
			b.Text(unix.NFTA_EXPR_NAME, name)
			b.Nested(unix.NFTA_EXPR_DATA, func() { b.Text(unix.NFTA_MATCH_NAME, data) })
		})
		return b.Content
	}
	const stamp = "capture-cni rules v1 ipv4 00"
	meta := expression("meta", "iifname")
	for name, tt := range map[string]struct {
		comments    [2]string
		expressions [2][]byte
		same        bool
	}{
		"the same":            {[2]string{"one", "one"}, [2][]byte{meta, meta}, true},
		"another comment":     {[2]string{"one", ""}, [2][]byte{meta, meta}, true},
		"iptables' comments":  {[2]string{}, [2][]byte{expression("match", "comment"), nil}, true},
		"counters":            {[2]string{}, [2][]byte{expression("counter", "1 packet"), expression("counter", "2 packets")}, true},
		"a counter or none":   {[2]string{}, [2][]byte{expression("counter", "1 packet"), nil}, true},
		"another stamp":       {[2]string{stamp, stamp + "1"}, [2][]byte{meta, meta}, true},
		"no stamp":            {[2]string{stamp, "one"}, [2][]byte{meta, meta}, false},
		"another match":       {[2]string{}, [2][]byte{expression("match", "commen"), nil}, false},
		"a target of a name":  {[2]string{}, [2][]byte{expression("target", "comment"), nil}, false},
		"other data":          {[2]string{}, [2][]byte{meta, expression("meta", "oifname")}, false},
		"another expression":  {[2]string{}, [2][]byte{meta, expression("cmp", "iifname")}, false},
		"an expression fewer": {[2]string{}, [2][]byte{meta, nil}, false},
	} {
		one, err := Parse(tt.comments[0], tt.expressions[0])
		other, otherErr := Parse(tt.comments[1], tt.expressions[1])
		if err != nil || otherErr != nil || (one.Content == other.Content) != tt.same || one.Comment != tt.comments[0] {
			t.Errorf("%s: %q, %v and %q, %v", name, one, err, other, otherErr)
		}
	}
	if _, err := Parse("", []byte{8, 0, 1, 0, 200, 0, 1, 0}); err == nil {
		t.Error("no error of an expression that is longer than its rule")
	}
}

// FuzzParse parses rules that no kernel sends today.
func FuzzParse(f *testing.F) {
	f.Add([]byte{12, 0, 1, 0, 8, 0, 1, 0, 'l', 'o', 0, 0}, []byte{1})
	f.Add([]byte{4, 0, 1, 0x80, 0}, []byte{1, 2, 3, 4})
	f.Fuzz(func(t *testing.T, data, key []byte) {
		if item, err := Parse("", data); err == nil && item.Content == "" {
			t.Error("a rule without content")
		}
		label := ElementLabel(string(key), ElementContent(data, key))
		if !strings.HasPrefix(label, "element ") && !strings.HasPrefix(label, "the end of a range before ") {
			t.Errorf("label %q", label)
		}
	})
}
