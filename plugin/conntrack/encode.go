// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Messages and attributes of ctnetlink, see linux/netfilter/nfnetlink_conntrack.h.
const (
	messageNew    = unix.NFNL_SUBSYS_CTNETLINK << 8
	messageGet    = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1
	messageDelete = unix.NFNL_SUBSYS_CTNETLINK<<8 | 2

	attributeOriginal = 1
	attributeReply    = 2
	attributeStatus   = 3
	attributeProtocol = 4 // what is particular to it
	attributeTimeout  = 7
	attributeID       = 12
	attributeZone     = 18

	tupleAddresses, tupleProtocol       = 1, 2
	ipv4Source, ipv4Destination         = 1, 2
	ipv6Source, ipv6Destination         = 3, 4
	protocolNumber                      = 1
	protocolSource, protocolDestination = 2, 3
	protocolTCP                         = 1
	tcpState                            = 1
	tcpFlagsOriginal, tcpFlagsReply     = 4, 5
)

// Bits of an entry's status, see linux/netfilter/nf_conntrack_common.h.
const (
	seenReply = 1 << 1
	assured   = 1 << 2 // not dropped for want of room
	confirmed = 1 << 3
	natted    = 1<<4 | 1<<5 // a source or a destination is translated
)

// Flags of either end, see linux/netfilter/nf_conntrack_tcp.h. One has conntrack
// accept segments outside of the window that it computes: it has not seen which
// scale the ends agreed on. The other has it take a SYN for a new connection once
// this one is closed, whichever end closed or reset it: without, the SYN would
// pass as a part of this one.
const (
	closeInit = 0x04
	liberal   = 0x08
	tcpFlags  = closeInit | liberal
)

// tracked is what conntrack makes of a connection at some stage.
type tracked struct {
	state   uint8  // see linux/netfilter/nf_conntrack_tcp.h
	status  uint32 // bits
	timeout uint32 // seconds until it is forgotten, those that the kernel gives by default
}

// Where SEEN_REPLY is set, nat has no say any more. An entry without it is
// confirmed, and nat does not touch a confirmed entry, either.
var stages = map[Stage]tracked{
	Requested: {1, confirmed, 120},
	Answered:  {2, confirmed | seenReply, 60},
	Open:      {3, confirmed | seenReply | assured, 5 * 24 * 60 * 60},
	Ended:     {4, confirmed | seenReply | assured, 120},
}

// encodeNew is the body of a message that creates a connection's entry.
func encodeNew(c Connection) ([]byte, error) {
	as := stages[c.Stage]
	return encodeBody(c.Client.Addr(), func(e *netlink.AttributeEncoder) {
		encodeTuple(e, attributeOriginal, c.Client, c.Server)
		encodeTuple(e, attributeReply, c.Server, c.Client)
		e.Uint32(attributeStatus, as.status)
		e.Uint32(attributeTimeout, as.timeout)
		e.Nested(attributeProtocol, func(e *netlink.AttributeEncoder) error {
			e.Nested(protocolTCP, func(e *netlink.AttributeEncoder) error {
				e.Uint8(tcpState, as.state)
				e.Bytes(tcpFlagsOriginal, []byte{tcpFlags, tcpFlags}) // flags, mask
				e.Bytes(tcpFlagsReply, []byte{tcpFlags, tcpFlags})
				return nil
			})
			return nil
		})
	})
}

// encodeUpdate is the body of a message that has the entry there live as long
// as an open connection's. What else it says stays: it may be translated.
func encodeUpdate(c Connection) ([]byte, error) {
	as := stages[Open]
	return encodeBody(c.Client.Addr(), func(e *netlink.AttributeEncoder) {
		encodeTuple(e, attributeOriginal, c.Client, c.Server)
		e.Uint32(attributeStatus, as.status)
		e.Uint32(attributeTimeout, as.timeout)
	})
}

// encodeDelete is the body of a message that deletes just this entry, and not
// another one of the same addresses and ports.
func encodeDelete(entry Entry) ([]byte, error) {
	return encodeBody(entry.Client.Addr(), func(e *netlink.AttributeEncoder) {
		encodeTuple(e, attributeOriginal, entry.Client, entry.Server)
		e.Uint32(attributeID, entry.id)
	})
}

func encodeBody(address netip.Addr, add func(*netlink.AttributeEncoder)) ([]byte, error) {
	e := netlink.NewAttributeEncoder()
	e.ByteOrder = binary.BigEndian
	add(e)
	attributes, err := e.Encode()
	if err != nil {
		return nil, fmt.Errorf("encoding a connection: %w", err)
	}
	return append(header(familyOf(address)), attributes...), nil
}

// header is a struct nfgenmsg.
func header(family byte) []byte { return []byte{family, unix.NFNETLINK_V0, 0, 0} }

func familyOf(address netip.Addr) byte {
	if address.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func encodeTuple(e *netlink.AttributeEncoder, attribute uint16, source, destination netip.AddrPort) {
	from, to := uint16(ipv4Source), uint16(ipv4Destination)
	if !source.Addr().Is4() {
		from, to = ipv6Source, ipv6Destination
	}
	e.Nested(attribute, func(e *netlink.AttributeEncoder) error {
		e.Nested(tupleAddresses, func(e *netlink.AttributeEncoder) error {
			e.Bytes(from, source.Addr().AsSlice())
			e.Bytes(to, destination.Addr().AsSlice())
			return nil
		})
		e.Nested(tupleProtocol, func(e *netlink.AttributeEncoder) error {
			e.Uint8(protocolNumber, unix.IPPROTO_TCP)
			e.Uint16(protocolSource, source.Port())
			e.Uint16(protocolDestination, destination.Port())
			return nil
		})
		return nil
	})
}
