// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"testing"
)

// TestOpenings parses exceptions, and prints them in the same form.
func TestOpenings(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Opening{
		"out:udp:53@10.96.0.10/32":   {false, "udp", 53, 53, netip.MustParsePrefix("10.96.0.10/32")},
		"in:tcp:8000-8080@fd00::/8":  {true, "tcp", 8000, 8080, netip.MustParsePrefix("fd00::/8")},
		"in:udp:0-65535@0.0.0.0/0":   {true, "udp", 0, 65535, netip.MustParsePrefix("0.0.0.0/0")},
		"up:udp:53@10.96.0.10/32":    {},
		"out:sctp:53@10.96.0.10/32":  {},
		"udp:53@10.96.0.10/32":       {},
		"out:udp:53:1@10.96.0.10/32": {},
	} {
		got, err := ParseOpening(text)
		if got != want || (err != nil) != (want == Opening{}) {
			t.Errorf("%s: got %+v, %v", text, got, err)
		}
		if err == nil && got.String() != text {
			t.Errorf("%s is printed as %s", text, got)
		}
	}
	for text, want := range map[string]string{
		"x-8": `"x": expected a decimal port number from 0 to 65535`, "8-x": `"x": expected a decimal port number from 0 to 65535`, "9-8": `"9-8": expected the lower port first`,
	} {
		if _, _, err := ParsePortRange(text); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

// TestPermits expects an operator's limit to permit only exceptions that one of its elements contains.
func TestPermits(t *testing.T) {
	t.Parallel()
	parse := func(text string) Opening {
		o, err := ParseOpening(text)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	limit := []Opening{parse("in:udp:1@192.0.2.0/24"), parse("out:tcp:80-90@10.0.0.0/8")}
	for text, want := range map[string]bool{
		"out:tcp:80-90@10.0.0.0/8": true, "out:tcp:80@10.1.0.0/16": true, "out:tcp:90@10.0.0.1/32": true,
		"out:tcp:79-90@10.0.0.0/8": false, "out:tcp:80-91@10.0.0.0/8": false, "out:tcp:80@10.0.0.0/7": false, "out:tcp:80@11.0.0.0/8": false,
		"out:udp:80@10.0.0.0/8": false, "in:tcp:80@10.0.0.0/8": false, "out:tcp:80@fd00::/8": false,
	} {
		if got := Permits(limit, parse(text)); got != want {
			t.Errorf("%s: got %v", text, got)
		}
		if !Permits(nil, parse(text)) || Permits([]Opening{}, parse(text)) {
			t.Errorf("%s: no limit refuses it, or an empty one permits it", text)
		}
	}
}
