// SPDX-License-Identifier: Apache-2.0

package nfnetlink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// TestNested finds the attribute at the end of a path, and nothing where a step is missing.
func TestNested(t *testing.T) {
	t.Parallel()
	encode := func(attributes ...netlink.Attribute) []byte {
		encoded, err := netlink.MarshalAttributes(attributes)
		if err != nil {
			t.Fatal(err)
		}
		return encoded
	}
	inner := encode(netlink.Attribute{Type: 2, Data: []byte("found")}, netlink.Attribute{Type: 9, Data: []byte("beside")})
	data := encode(netlink.Attribute{Type: 7, Data: []byte("before")}, netlink.Attribute{Type: 1, Data: inner})
	for want, path := range map[string][]uint16{
		"found": {1, 2}, "beside": {1, 9}, "before": {7},
		"": {1, 3}, " ": {3}, "  ": {1, 2, 3}, "   ": {7, 2},
	} {
		content, found := Nested(data, path...)
		if want = strings.TrimSpace(want); found != (want != "") || string(content) != want {
			t.Errorf("path %v: %q, %v; want %q", path, content, found, want)
		}
	}
}

// TestAttributes reads attributes of all lengths, and nothing behind one of an impossible length.
func TestAttributes(t *testing.T) {
	t.Parallel()
	header := func(length, kind uint16) string {
		return string(binary.NativeEndian.AppendUint16(binary.NativeEndian.AppendUint16(nil, length), kind))
	}
	for data, want := range map[string]string{
		"":                                   "",
		header(4, 1):                         "1=;",
		header(5, 1|unix.NLA_F_NESTED) + "a": "1=a;",
		header(5, 1) + "a\x00\x00\x00" + header(6, 2) + "bc": "1=a;2=bc;",
		header(8, 1) + "abcd" + header(8, 2) + "efgh":        "1=abcd;2=efgh;",
		header(4, 1)[:3]: "malformed",
		header(3, 1):     "malformed",
		header(5, 1):     "malformed",
	} {
		got := ""
		if err := EachAttribute([]byte(data), func(kind uint16, content []byte) error {
			got += fmt.Sprintf("%d=%s;", kind, content)
			return nil
		}); errors.Is(err, errMalformed) {
			got += "malformed"
		}
		parsed, err := ParseAttributes([]byte(data))
		if got != want || (err != nil) != (want == "malformed") || len(parsed) != strings.Count(want, ";") {
			t.Errorf("%q: got %q, %v, %v; want %q", data, got, parsed, err, want)
		}
		message, err := parseMessage([]byte("\x07\x00\x00\x00" + data))
		if (err != nil) != (want == "malformed") || (message != nil) != (err == nil) || err == nil && (len(message) != len(parsed)+1 || message[Family][0] != 7) {
			t.Errorf("%q as a message: got %v, %v", data, message, err)
		}
	}
	two := header(5, 1) + "a\x00\x00\x00" + header(5, 2) + "b"
	stop, seen := errors.New("stop"), 0
	if err := EachAttribute([]byte(two), func(uint16, []byte) error { seen++; return stop }); !errors.Is(err, stop) || seen != 1 {
		t.Errorf("got %v after %d attributes", err, seen)
	}
	if content, found := Nested([]byte(two+"\x00\x00\x00"+header(9, 1)[:2]), 1); found || content != nil {
		t.Errorf("in a malformed list: %q, %v", content, found)
	}
	if _, err := parseMessage([]byte("abc")); err == nil || err.Error() != "reading nftables: a message of 3 bytes: expected at least 4" {
		t.Errorf("a message without its header: %v", err)
	}
	if a, b := BigEndian([]byte("\x00\x00\x00\x00\x00\x00\x01\x02")), BigEndian([]byte("\x01\x02\x03\x04")); a != 258 || b != 0 {
		t.Errorf("numbers %d and %d", a, b)
	}
}

// TestUserComment finds a comment behind other user data, and none in malformed data.
func TestUserComment(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]string{
		"": "", "\x00": "", "\x00\x00": "found", "\x00\x03ab\x00": "found ab", "\x00\x02ab": "found ab", "\x00\x03ab": "", "\x01\x02ab": "",
		"\x01\x02ab\x00\x03cd\x00": "found cd", "\x01\x00\x00\x01c": "found c", "\x00\x04a\x00b\x00": "found a",
	} {
		comment, found := UserComment([]byte(data))
		if wanted, ok := strings.CutPrefix(want, "found"); found != ok || comment != strings.TrimSpace(wanted) {
			t.Errorf("%q: got %q, %v; want %q", data, comment, found, want)
		}
	}
	if got := Comment([]byte("ab\x00xwhy: this\x00why: that"), "why: "); got != "why: this" {
		t.Errorf("got %q", got)
	}
	if got, none := Comment([]byte("why: first"), "why: "), Comment([]byte("why"), "why: "); got != "why: first" || none != "" {
		t.Errorf("got %q, %q", got, none)
	}
}

// FuzzAttributes parses messages that no kernel sends today.
func FuzzAttributes(f *testing.F) {
	f.Add([]byte{12, 0, 1, 0, 8, 0, 1, 0, 'l', 'o', 0, 0})
	f.Add([]byte{200, 0, 1, 0})
	f.Add([]byte{4, 0, 1, 0x80, 0})
	f.Add([]byte{0, 0, 1, 0, 4, 0, 1, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		seen := 0
		err := EachAttribute(data, func(_ uint16, content []byte) error {
			seen += 4 + len(content)
			return nil
		})
		if seen > len(data) || err == nil && seen+3 < len(data) && seen == 0 {
			t.Errorf("%d of %d bytes were read: %v", seen, len(data), err)
		}
		if message, err := parseMessage(data); err == nil && len(message[Family]) != 1 {
			t.Error("a message without a family")
		}
		if comment, found := UserComment(data); !found && comment != "" {
			t.Errorf("comment %q", comment)
		}
	})
}
