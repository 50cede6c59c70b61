// SPDX-License-Identifier: Apache-2.0

package capture_test

import (
	"encoding/json"
	"net/netip"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// TestStamp expects one stamp for equal rules, and another one for others.
func TestStamp(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	cases, _ := filepath.Glob("testdata/*/pod.yaml")
	for _, path := range cases {
		rs := rulesOf(t, filepath.Dir(path))
		text, err := json.Marshal(rs)
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[rs.Stamp()]; ok && other != string(text) {
			t.Errorf("%s: other rules bear the same stamp", path)
		}
		seen[rs.Stamp()] = string(text)
		if rs.Stamp() != rulesOf(t, filepath.Dir(path)).Stamp() {
			t.Errorf("%s: the same rules bear another stamp", path)
		}
		if got := capture.StampedIPv6(rs.Stamp()); got != rs.IPv6 {
			t.Errorf("%s: by the stamp %q, IPv6 is %q", path, rs.Stamp(), got)
		}
	}
}

// TestStampHoldsEveryField changes one value after the other, of every field that
// a Ruleset has, and expects another stamp each time, except of a comment's text and of what decides no packet.
func TestStampHoldsEveryField(t *testing.T) {
	t.Parallel()
	var rs capture.Ruleset
	fill(reflect.ValueOf(&rs).Elem())
	seen := map[string]string{rs.Stamp(): "no change"}
	eachValue(reflect.ValueOf(&rs).Elem(), "Ruleset", func(path string, value reflect.Value) {
		before := reflect.ValueOf(value.Interface())
		change(value)
		if strings.HasSuffix(path, ".Why") || strings.HasSuffix(path, ".PerPacket") {
			if seen[rs.Stamp()] != "no change" {
				t.Errorf("%s changes the stamp", path)
			}
			value.Set(before)
			return
		}
		if other, ok := seen[rs.Stamp()]; ok {
			t.Errorf("%s: the stamp is that of %s", path, other)
		}
		seen[rs.Stamp()] = path
		value.Set(before)
	})
	if len(seen) < 50 {
		t.Errorf("%d values were changed", len(seen))
	}
}

// fill sets every field, and every list to two values.
func fill(v reflect.Value) {
	if v.Kind() == reflect.Slice {
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
	}
	eachPart(v, "", func(_ string, part reflect.Value) { fill(part) }, func(string, reflect.Value) { change(v) })
}

func eachValue(v reflect.Value, path string, visit func(path string, value reflect.Value)) {
	eachPart(v, path, func(path string, part reflect.Value) { eachValue(part, path, visit) }, visit)
}

// eachPart visits the exported fields of a struct or the values of a list; of
// anything else the value itself.
func eachPart(v reflect.Value, path string, part, value func(path string, v reflect.Value)) {
	switch {
	case v.Type() == reflect.TypeFor[netip.Prefix](), v.Type() == reflect.TypeFor[netip.AddrPort]():
		value(path, v)
	case v.Kind() == reflect.Struct:
		for field, content := range v.Fields() {
			if field.IsExported() {
				part(path+"."+field.Name, content)
			}
		}
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			part(path+"[]", v.Index(i))
		}
	default:
		value(path, v)
	}
}

func change(v reflect.Value) {
	switch old := v.Interface().(type) {
	case netip.Prefix:
		next := netip.MustParsePrefix("10.0.0.0/8")
		if old == next {
			next = netip.MustParsePrefix("11.0.0.0/8")
		}
		v.Set(reflect.ValueOf(next))
	case netip.AddrPort:
		v.Set(reflect.ValueOf(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, 1}), old.Port()+1)))
	case bool:
		v.SetBool(!old)
	default:
		if v.CanUint() {
			v.SetUint(v.Uint() + 1)
		} else {
			v.SetString(v.String() + "x")
		}
	}
}

// TestStampIsUnambiguous compares rules whose values, written one after the
// other, are the same.
func TestStampIsUnambiguous(t *testing.T) {
	t.Parallel()
	ruleset := func(rules ...capture.Rule) capture.Ruleset {
		return capture.Ruleset{Chains: []capture.Chain{{Table: capture.NAT, Name: "ISTIO_X", Rules: rules}}}
	}
	in := func(names ...string) capture.Match { return capture.Match{In: capture.List[string]{Values: names}} }
	seen := map[string]int{}
	for i, rs := range []capture.Ruleset{
		ruleset(capture.Rule{Match: in("a", "b")}),
		ruleset(capture.Rule{Match: in("a b")}),
		ruleset(capture.Rule{Match: in("ab")}),
		ruleset(capture.Rule{Match: in("a", "b", "out", "c")}),
		ruleset(capture.Rule{Match: capture.Match{In: in("a", "b").In, Out: in("c").In}}),
		ruleset(capture.Rule{Match: capture.Match{Out: in("ab").In}}),
		ruleset(capture.Rule{Match: in("a")}, capture.Rule{Match: in("b")}),
		ruleset(capture.Rule{Why: "a"}, capture.Rule{Why: "b"}),
		ruleset(capture.Rule{Why: "ab"}),
		ruleset(capture.Rule{Match: capture.Match{Mark: 1}}),
		ruleset(capture.Rule{Do: capture.Action{Mark: 1}}),
		{Chains: []capture.Chain{{Table: capture.NAT, Hook: capture.Output}}},
		{Chains: []capture.Chain{{Table: capture.NAT, Name: string(capture.Output)}}},
	} {
		if other, ok := seen[rs.Stamp()]; ok {
			t.Errorf("rulesets %d and %d bear one stamp", other, i)
		}
		seen[rs.Stamp()] = i
	}
	empty := ruleset(capture.Rule{Match: capture.Match{In: capture.List[string]{Name: "a name of no set"}}})
	if empty.Stamp() != ruleset(capture.Rule{}).Stamp() {
		t.Error("an empty list changes the stamp")
	}
}

// TestStampedIPv6 reads the families of stamps as every version writes them.
func TestStampedIPv6(t *testing.T) {
	t.Parallel()
	for stamp, want := range map[string]capture.Treatment{
		"4 ipv4 00112233445566778899aabbccddeeff":              "",
		"4 ipv4,ipv6 00112233445566778899aabbccddeeff":         capture.Captured,
		"4 ipv4,ipv6=refused 00112233445566778899aabbccddeeff": capture.Refused,
		"": "",
	} {
		if got := capture.StampedIPv6(capture.StampPrefix + stamp); got != want {
			t.Errorf("%s: %q, want %q", stamp, got, want)
		}
	}
	if got := capture.StampedIPv6(""); got != "" {
		t.Errorf("no stamp: %q", got)
	}
}
