// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Entry is conntrack's entry of a TCP connection, with its addresses before any
// translation.
type Entry struct {
	Client, Server netip.AddrPort
	Translated     bool
	TimeWait       bool   // closed: a SYN of the same addresses and ports begins a new connection
	Assured        bool   // both ends have sent
	Timeout        uint32 // seconds until the entry expires
	id             uint32
}

// Entries returns the entries for which wanted returns true, at most most of them.
// complete reports whether these are all. It leaves out entries of conntrack's
// zones: the rules set none for TCP.
func Entries(ctx context.Context, most int, wanted func(Entry) bool) (entries []Entry, complete bool, err error) {
	entries, complete, err = dump(ctx, unix.NETLINK_NETFILTER, messageGet, header(unix.AF_UNSPEC), most, func(body []byte) (Entry, bool) {
		entry, ok := parseEntry(body)
		return entry, ok && wanted(entry)
	})
	if err != nil {
		return nil, false, fmt.Errorf("listing conntrack entries: %w", err)
	}
	return entries, complete, nil
}

// parseEntry parses a message of ctnetlink; ok reports whether it is an entry of
// TCP in no zone.
func parseEntry(body []byte) (entry Entry, ok bool) {
	const headerLength = 4 // struct nfgenmsg
	if len(body) < headerLength {
		return Entry{}, false
	}
	zone := false
	for attribute, data := range attributes(body[headerLength:]) {
		switch attribute {
		case attributeOriginal:
			entry.Client, entry.Server, ok = parseTuple(data)
		case attributeStatus:
			status := number(data)
			entry.Translated, entry.Assured = status&natted != 0, status&assured != 0
		case attributeProtocol:
			entry.TimeWait = isTimeWait(data)
		case attributeTimeout:
			entry.Timeout = number(data)
		case attributeID:
			entry.id = number(data)
		case attributeZone:
			zone = true
		}
	}
	return entry, ok && !zone
}

func parseTuple(data []byte) (source, destination netip.AddrPort, ok bool) {
	var from, to netip.Addr
	for attribute, address := range attributes(find(data, tupleAddresses)) {
		switch attribute {
		case ipv4Source, ipv6Source:
			from, _ = netip.AddrFromSlice(address)
		case ipv4Destination, ipv6Destination:
			to, _ = netip.AddrFromSlice(address)
		}
	}
	ports := find(data, tupleProtocol)
	source = netip.AddrPortFrom(from, port(find(ports, protocolSource)))
	destination = netip.AddrPortFrom(to, port(find(ports, protocolDestination)))
	isTCP := bytes.Equal(find(ports, protocolNumber), []byte{unix.IPPROTO_TCP})
	return source, destination, isTCP && from.IsValid() && to.IsValid()
}

// isTimeWait reports whether the connection was closed by both ends: the kernel takes
// a SYN for a new one.
func isTimeWait(protocol []byte) bool {
	const timeWait = 7
	return bytes.Equal(find(find(protocol, protocolTCP), tcpState), []byte{timeWait})
}

// attributes iterates over the attributes of a message, up to the first malformed
// one. It allocates nothing: a table can hold hundreds of thousands of entries.
func attributes(data []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(data) >= unix.NLA_HDRLEN {
			length := int(binary.NativeEndian.Uint16(data))
			if length < unix.NLA_HDRLEN || length > len(data) {
				return
			}
			const flags = unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER
			if !yield(binary.NativeEndian.Uint16(data[2:])&^flags, data[unix.NLA_HDRLEN:length]) {
				return
			}
			data = data[min(len(data), (length+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1)):]
		}
	}
}

// find returns the content of the first attribute of a type, nil where there is none.
func find(data []byte, wanted uint16) []byte {
	for attribute, content := range attributes(data) {
		if attribute == wanted {
			return content
		}
	}
	return nil
}

// number returns a 32-bit attribute, 0 where the length differs.
func number(data []byte) uint32 {
	if len(data) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(data)
}

func port(data []byte) uint16 {
	if len(data) != 2 {
		return 0
	}
	return binary.BigEndian.Uint16(data)
}
