// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strconv"
	"strings"
	"testing"
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
		{text: "::ffff:10.1.2.3", err: "write 10.1.2.3/32"},
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
		"eth0": "", "k6t-eth0": "", "a": "", "bond0.100": "", "AZaz": "", "eth[": "expected an interface name", "eth{": "expected an interface name", "abcdefghijklmno": "",
		"": "empty element", "abcdefghijklmnop": "expected an interface name", "0eth": "expected an interface name",
		"eth+": "expected an interface name", "*": "expected an interface name", "-j": "expected an interface name",
		"eth 0": "expected an interface name", `eth"0`: "expected an interface name", "eth0\n": "expected an interface name",
	} {
		_, err := ParseInterface(text)
		expect(t, text, err, want)
	}
}

func FuzzParsePort(f *testing.F) {
	for _, seed := range []string{"", "0", "80", "65535", "65536", "0120", "-1", "*", " 80"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		port, err := ParsePort(text)
		if err == nil && strconv.Itoa(int(port)) != text {
			t.Errorf("%q was read as %d", text, port)
		}
	})
}

func FuzzParsePrefix(f *testing.F) {
	for _, seed := range []string{"", "10.0.0.0/8", "10.1.2.3/8", "::/0", "::ffff:1.2.3.4/120", "fe80::1%lo/64", "1.2.3.4"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		prefix, err := ParsePrefix(text)
		if err != nil {
			return
		}
		again, err := ParsePrefix(prefix.String())
		if err != nil || again != prefix {
			t.Errorf("%q was read as %s, and that as %s (%v)", text, prefix, again, err)
		}
	})
}

func FuzzParseInterface(f *testing.F) {
	for _, seed := range []string{"", "eth0", "k6t-eth0", "eth+", "abcdefghijklmnop", "0eth", "eth0\n", "ethé"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		name, err := ParseInterface(text)
		if err == nil && (name != text || len(name) > 15 || strings.ContainsAny(name, " \t\n\"'*+/$%{};#:@\\") || name[0] == '-') {
			t.Errorf("%q was read as %q", text, name)
		}
	})
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
