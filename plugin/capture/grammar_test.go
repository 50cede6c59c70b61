// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/quick"
)

func TestParsePort(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text, err string
		want      uint16
	}{
		{text: "0"},
		{text: "80", want: 80},
		{text: "65535", want: 65535},
		{text: "65536", err: "from 0 to 65535"},
		{text: "0120", err: "leading zero"},
		{text: "00", err: "leading zero"},
		{text: "-1", err: `"-1": expected a decimal port`},
		{text: "+80", err: `"+80": expected a decimal port`},
		{text: "8_0", err: "expected a decimal port"},
		{text: "٣", err: "expected a decimal port"},
		{text: "0x50", err: "leading zero"},
		{text: "80-90", err: "expected a decimal port"},
		{text: "http", err: "expected a decimal port"},
		{text: "", err: "empty element"},
		{text: "*", err: "cannot be part of a list"},
		{text: "99999999999999999999", err: "from 0 to 65535"},
	} {
		got, err := ParsePort(test.text)
		expect(t, test.text, err, test.err)
		if got != test.want {
			t.Errorf("%q: got %d, want %d", test.text, got, test.want)
		}
	}
}

func TestParsePrefix(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ text, want, err string }{
		{text: "10.1.2.3/8", want: "10.0.0.0/8"},
		{text: "0.0.0.0/0", want: "0.0.0.0/0"},
		{text: "2001:DB8::1/32", want: "2001:db8::/32"},
		{text: "::1/128", want: "::1/128"},
		{text: "10.1.2.3", err: "write 10.1.2.3/32"},
		{text: "2001:db8::1", err: "write 2001:db8::1/128"},
		{text: "10.0.0.0/33", err: "expected a range"},
		{text: "10.0.0.0/08", err: "expected a range"},
		{text: "10.0.0/8", err: "expected a range"},
		{text: "::ffff:10.0.0.0/104", err: "write it as IPv4"},
		{text: "fe80::%eth0/64", err: "expected a range"},
		{text: "", err: "empty element"},
		{text: "*", err: "cannot be part of a list"},
		{text: "10.0.0.0/8 # office", err: "expected a range"},
	} {
		got, err := ParsePrefix(test.text)
		expect(t, test.text, err, test.err)
		if err == nil && got.String() != test.want {
			t.Errorf("%q: got %s, want %s", test.text, got, test.want)
		}
	}
}

func TestParseInterface(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"eth0": "", "k6t-eth0": "", "a": "", "bond0.100": "", "abcdefghijklmno": "",
		"": "empty element", "abcdefghijklmnop": "expected an interface name", "0eth": "expected an interface name",
		"eth+": "expected an interface name", "*": "expected an interface name", "-j": "expected an interface name",
		"eth 0": "expected an interface name", `eth"0`: "expected an interface name", "eth0\n": "expected an interface name",
	} {
		_, err := parseInterface(text)
		expect(t, text, err, want)
	}
}

func TestParseList(t *testing.T) {
	t.Parallel()
	got, err := parseList(" 80, 443 ,8080", ParsePort)
	if err != nil || !slices.Equal(got, []uint16{80, 443, 8080}) {
		t.Errorf("got %v, %v", got, err)
	}
	for _, empty := range []string{"", "  "} {
		if got, err := parseList(empty, ParsePort); err != nil || got != nil {
			t.Errorf("%q: got %v, %v", empty, got, err)
		}
	}
	_, err = parseList("80,,x,443,", ParsePort)
	if err == nil || strings.Count(err.Error(), "empty element") != 2 || !strings.Contains(err.Error(), `"x"`) {
		t.Errorf("not every fault is named: %v", err)
	}
	if all, err := parseSelection(" * ", ParsePort); err != nil || !all.All {
		t.Errorf("got %v, %v", all, err)
	}
	_, err = parseSelection("*,80", ParsePort)
	expect(t, "*,80", err, "cannot be part of a list")
}

func expect(t *testing.T, input string, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("%q: %v", input, err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("%q: got error %v, want one with %q", input, err, want)
	}
}

// TestDisjoint draws ranges in a small space, where they overlap a lot: the
// result holds the same addresses, and none twice.
func TestDisjoint(t *testing.T) {
	t.Parallel()
	property := func(seeds []uint16) bool {
		var ranges []netip.Prefix
		for _, s := range seeds {
			address := netip.AddrFrom4([4]byte{10, 0, 0, byte(s)})
			ranges = append(ranges, netip.PrefixFrom(address, 24+int(s>>8)%9).Masked())
		}
		kept := disjoint(ranges)
		for i := range 256 {
			address := netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
			holds := func(p netip.Prefix) bool { return p.Contains(address) }
			count := 0
			for _, p := range kept {
				if holds(p) {
					count++
				}
			}
			if count > 1 || (count == 1) != slices.ContainsFunc(ranges, holds) {
				return false
			}
		}
		return true
	}
	if err := quick.Check(property, &quick.Config{MaxCount: 500}); err != nil {
		t.Error(err)
	}
}
