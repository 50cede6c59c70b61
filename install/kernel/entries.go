// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
	"github.com/capture-cni/capture-cni/plugin/nlsocket"
)

// Entry is conntrack's entry of a TCP connection. Its addresses are those before any translation.
type Entry struct {
	Client, Server netip.AddrPort
	Translated     bool
	TimeWait       bool   // closed, so a SYN with the same addresses and ports begins a new connection
	Assured        bool   // the connection was established
	Timeout        uint32 // seconds until the entry expires
	id             uint32
}

// Entries returns up to most TCP entries for which wanted returns true. complete reports whether these
// are all. Entries omits entries in conntrack's zones, because our rules set no zone for TCP.
func Entries(ctx context.Context, most int, wanted func(Entry) bool) (entries []Entry, complete bool, err error) {
	parse := func(body []byte) (Entry, bool) {
		entry, ok := parseEntry(body)
		return entry, ok && wanted(entry)
	}
	entries, complete, err = dumpEntries(ctx, unix.NETLINK_NETFILTER, messageGet, header(unix.AF_UNSPEC), most, parse)
	if err != nil {
		return nil, false, fmt.Errorf("listing conntrack entries: %w", err)
	}
	return entries, complete, nil
}

// parseEntry parses a message of ctnetlink. ok reports whether it is a TCP entry outside all zones.
// parseEntry allocates no memory, because a table can contain hundreds of thousands of entries.
func parseEntry(body []byte) (entry Entry, ok bool) {
	const headerLength = 4 // struct nfgenmsg
	if len(body) < headerLength {
		return Entry{}, false
	}
	zone := false
	err := nfnetlink.EachAttribute(body[headerLength:], func(attribute uint16, data []byte) error {
		switch attribute {
		case attributeOriginal:
			entry.Client, entry.Server, ok = parseTuple(data)
		case attributeStatus:
			status := attributeNumber(data)
			entry.Translated, entry.Assured = status&natted != 0, status&assured != 0
		case attributeProtocol:
			const timeWait = 7 // closed by both ends, so the kernel accepts a SYN as a new connection
			state, _ := nfnetlink.Nested(data, protocolTCP, tcpState)
			entry.TimeWait = bytes.Equal(state, []byte{timeWait})
		case attributeTimeout:
			entry.Timeout = attributeNumber(data)
		case attributeID:
			entry.id = attributeNumber(data)
		case attributeZone:
			zone = true
		}
		return nil
	})
	return entry, err == nil && ok && !zone
}

func parseTuple(data []byte) (source, destination netip.AddrPort, ok bool) {
	var from, to netip.Addr
	var fromPort, toPort uint16
	tcp := false
	ports, _ := nfnetlink.Nested(data, tupleProtocol)
	err := nfnetlink.EachAttribute(ports, func(attribute uint16, content []byte) error {
		switch {
		case attribute == protocolNumber:
			tcp = bytes.Equal(content, []byte{unix.IPPROTO_TCP})
		case attribute == protocolSource && len(content) == 2:
			fromPort = binary.BigEndian.Uint16(content)
		case attribute == protocolDestination && len(content) == 2:
			toPort = binary.BigEndian.Uint16(content)
		}
		return nil
	})
	if err != nil || !tcp { // most of a namespace's entries can belong to another protocol
		return source, destination, false
	}
	addresses, _ := nfnetlink.Nested(data, tupleAddresses)
	err = nfnetlink.EachAttribute(addresses, func(attribute uint16, address []byte) error {
		switch attribute {
		case ipv4Source, ipv6Source:
			from, _ = netip.AddrFromSlice(address)
		case ipv4Destination, ipv6Destination:
			to, _ = netip.AddrFromSlice(address)
		}
		return nil
	})
	return netip.AddrPortFrom(from, fromPort), netip.AddrPortFrom(to, toPort), err == nil && from.IsValid() && to.IsValid()
}

// attributeNumber returns a 32-bit attribute, or 0 if data has another length.
func attributeNumber(data []byte) uint32 {
	if len(data) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(data)
}

// dumpEntries returns up to most parsed objects of a dump for which parse returns true. complete
// reports whether these are all.
func dumpEntries[T any](
	ctx context.Context, protocol int, kind uint16, request []byte, most int, parse func(body []byte) (T, bool),
) (found []T, complete bool, err error) {
	s, err := nlsocket.Dial(protocol)
	if err != nil {
		return nil, false, err
	}
	defer s.Close()
	if err := s.Send(nlsocket.AppendMessage(nil, kind, unix.NLM_F_REQUEST|unix.NLM_F_DUMP, 0, request)); err != nil {
		return nil, false, err
	}
	complete = true
	err = s.Receive(ctx, func(m syscall.NetlinkMessage) (bool, error) {
		if m.Header.Type == unix.NLMSG_DONE || m.Header.Type == unix.NLMSG_ERROR {
			return false, nlsocket.ErrorOf(m.Data)
		}
		object, ok := parse(m.Data)
		if ok && len(found) == most {
			complete = false
		} else if ok {
			found = append(found, object)
		}
		return complete, nil
	})
	return found, complete, err
}
