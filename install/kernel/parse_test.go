// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
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

// TestParseEntry reads what a rule of nat or a repair depends on, and takes nothing for an
// entry of TCP that is none.
func TestParseEntry(t *testing.T) {
	t.Parallel()
	type part = func(b *nfnetlink.Batch)
	attribute := func(kind uint16, data ...byte) part { return func(b *nfnetlink.Batch) { b.Bytes(kind, data) } }
	broken := func(b *nfnetlink.Batch) { b.Content = append(b.Content, 1, 0, 1, 0) } // shorter than its head
	state := func(state byte) part {
		return func(b *nfnetlink.Batch) {
			b.Nested(attributeProtocol, func() { b.Nested(protocolTCP, func() { b.Bytes(tcpState, []byte{state}) }) })
		}
	}
	from, to := attribute(ipv4Source, 192, 0, 2, 1), attribute(ipv4Destination, 192, 0, 2, 2)
	tcp, port, server := attribute(protocolNumber, 6), attribute(protocolSource, 4, 0), attribute(protocolDestination, 0, 80)
	plain := Entry{Client: netip.MustParseAddrPort("192.0.2.1:1024"), Server: netip.MustParseAddrPort("192.0.2.2:80")}
	with := func(change func(*Entry)) *Entry {
		e := plain
		change(&e)
		return &e
	}
	for name, tt := range map[string]struct {
		addresses, protocol, more []part
		want                      *Entry // nil for none
	}{
		"plain":                 {want: &plain},
		"of UDP":                {protocol: []part{attribute(protocolNumber, 17), port, server}},
		"of no protocol":        {protocol: []part{port, server}},
		"from nowhere":          {addresses: []part{to}},
		"to nowhere":            {addresses: []part{from}},
		"with broken addresses": {addresses: []part{from, to, broken}},
		"with broken ports":     {protocol: []part{tcp, port, server, broken}},
		"broken":                {more: []part{broken}},
		"of a zone":             {more: []part{attribute(attributeZone, 0, 1)}},
		"of ports of other size": {
			protocol: []part{tcp, attribute(protocolSource, 1), attribute(protocolDestination, 1)},
			want: with(func(e *Entry) {
				e.Client, e.Server = netip.AddrPortFrom(e.Client.Addr(), 0), netip.AddrPortFrom(e.Server.Addr(), 0)
			}),
		},
		"of unknown attributes":  {protocol: []part{tcp, port, server, attribute(9, 9, 9)}, more: []part{attribute(99, 0, 0, 0, 1)}, want: &plain},
		"of a translated source": {more: []part{attribute(attributeStatus, 0, 0, 0, 1<<4)}, want: with(func(e *Entry) { e.Translated = true })},
		"of a translated server": {more: []part{attribute(attributeStatus, 0, 0, 0, 1<<5)}, want: with(func(e *Entry) { e.Translated = true })},
		"assured":                {more: []part{attribute(attributeStatus, 0, 0, 0, 1<<2)}, want: with(func(e *Entry) { e.Assured = true })},
		"a status of 3 bytes":    {more: []part{attribute(attributeStatus, 0, 0, 1<<2)}, want: &plain},
		"with a timeout":         {more: []part{attribute(attributeTimeout, 0, 0, 1, 1)}, want: with(func(e *Entry) { e.Timeout = 257 })},
		"with an ID":             {more: []part{attribute(attributeID, 0, 0, 1, 2)}, want: with(func(e *Entry) { e.id = 258 })},
		"closed by both":         {more: []part{state(7)}, want: with(func(e *Entry) { e.TimeWait = true })},
		"closed by one":          {more: []part{state(4)}, want: &plain},
	} {
		if tt.addresses == nil {
			tt.addresses = []part{from, to}
		}
		if tt.protocol == nil {
			tt.protocol = []part{tcp, port, server}
		}
		b := newBody(plain.Client.Addr())
		nested := func(kind uint16, parts []part) {
			b.Nested(kind, func() {
				for _, add := range parts {
					add(b)
				}
			})
		}
		b.Nested(attributeOriginal, func() {
			nested(tupleAddresses, tt.addresses)
			nested(tupleProtocol, tt.protocol)
		})
		for _, add := range tt.more {
			add(b)
		}
		if got, ok := parseEntry(b.Content); ok != (tt.want != nil) || ok && got != *tt.want {
			t.Errorf("%s: %+v, %v", name, got, ok)
		}
	}
	numbered := *with(func(e *Entry) { e.id = 7 })
	if got, ok := parseEntry(encodeDelete(numbered)); !ok || got != numbered {
		t.Errorf("the request to delete is for %+v, %v", got, ok)
	}
	if _, ok := parseEntry(make([]byte, 3)); ok {
		t.Error("an entry of three bytes")
	}
}

// TestParseSocket reads sockets of both families, and one of IPv6 with a peer of IPv4.
func TestParseSocket(t *testing.T) {
	t.Parallel()
	message := func(family byte, state SocketState, inode uint32, local, remote string) []byte {
		body := make([]byte, 72)
		body[0], body[1] = family, byte(state)
		for i, end := range []string{local, remote} {
			address := netip.MustParseAddrPort(end)
			binary.BigEndian.PutUint16(body[4+2*i:], address.Port())
			copy(body[8+16*i:], address.Addr().AsSlice())
		}
		binary.NativeEndian.PutUint32(body[64:], 1337)
		binary.NativeEndian.PutUint32(body[68:], inode)
		return body
	}
	at := netip.MustParseAddrPort
	for name, tt := range map[string]struct {
		body []byte
		want Socket
	}{
		"IPv4":    {message(unix.AF_INET, Established, 9, "192.0.2.1:80", "192.0.2.2:1"), Socket{at("192.0.2.1:80"), at("192.0.2.2:1"), Established, false, false, 1337}},
		"IPv6":    {message(unix.AF_INET6, FinWait1, 0, "[::1]:80", "[::2]:1"), Socket{at("[::1]:80"), at("[::2]:1"), FinWait1, true, true, 1337}},
		"of both": {message(unix.AF_INET6, Closing, 9, "[::ffff:192.0.2.1]:1", "[::ffff:192.0.2.2]:2"), Socket{at("192.0.2.1:1"), at("192.0.2.2:2"), Closing, false, true, 1337}},
	} {
		if got, ok := parseSocket(tt.body); got != tt.want || !ok {
			t.Errorf("%s: %+v, %v", name, got, ok)
		}
		if got, ok := parseSocket(tt.body[:71]); ok {
			t.Errorf("%s, cut: %+v", name, got)
		}
	}
}

// TestSocketRequest expects the states as a C program would write them.
func TestSocketRequest(t *testing.T) {
	t.Parallel()
	request := struct {
		family, protocol, extension, pad uint8
		states                           uint32
	}{family: unix.AF_INET6, protocol: unix.IPPROTO_TCP, states: listed}
	got := socketRequest(unix.AF_INET6, listed)
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
