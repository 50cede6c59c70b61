// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"bytes"
	"net/netip"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// FuzzParseEntry parses arbitrary messages.
func FuzzParseEntry(f *testing.F) {
	for _, c := range []Connection{
		{netip.MustParseAddrPort("192.0.2.1:1"), netip.MustParseAddrPort("192.0.2.2:80"), Open},
		{netip.MustParseAddrPort("[2001:db8::1]:2"), netip.MustParseAddrPort("[2001:db8::2]:80"), Ended},
	} {
		body := encodeNew(c)
		f.Add(body)
		entry, ok := parseEntry(body)
		if !ok || entry.Client != c.Client || entry.Server != c.Server || entry.Timeout != entryStates[c.Stage].timeout || !entry.Assured {
			f.Errorf("%+v is read as %+v, %v", c, entry, ok)
		}
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		entry, ok := parseEntry(body)
		if ok && (!entry.Client.IsValid() || !entry.Server.IsValid()) {
			t.Errorf("an entry without addresses: %+v", entry)
		}
	})
}

// TestSocketRequest expects the states as a C program would write them.
func TestSocketRequest(t *testing.T) {
	t.Parallel()
	request := struct {
		family, protocol, extension, pad uint8
		states                           uint32
	}{family: unix.AF_INET6, protocol: unix.IPPROTO_TCP, states: listed}
	got := socketRequest(unix.AF_INET6)
	if want := unsafe.Slice((*byte)(unsafe.Pointer(&request)), unsafe.Sizeof(request)); !bytes.HasPrefix(got, want) {
		t.Errorf("% x, want % x", got, want)
	}
}

// FuzzParseSocket parses arbitrary messages.
func FuzzParseSocket(f *testing.F) {
	f.Add(make([]byte, 72))
	f.Add(append([]byte{2, 10}, make([]byte, 80)...))
	f.Fuzz(func(t *testing.T, body []byte) {
		socket, ok := parseSocket(body)
		if ok && (!socket.Local.IsValid() || !socket.Remote.IsValid() || socket.Local.Addr().Is4In6()) {
			t.Errorf("a socket without addresses: %+v", socket)
		}
	})
}
