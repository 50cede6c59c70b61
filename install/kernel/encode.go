// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
)

// Messages and attributes of ctnetlink, from linux/netfilter/nfnetlink_conntrack.h. This package
// encodes and decodes them itself, because libraries omit the status of an entry, or keep a whole dump
// in memory.
const (
	messageNew    = unix.NFNL_SUBSYS_CTNETLINK << 8
	messageGet    = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1
	messageDelete = unix.NFNL_SUBSYS_CTNETLINK<<8 | 2

	attributeOriginal = 1
	attributeReply    = 2
	attributeStatus   = 3
	attributeProtocol = 4 // state of the protocol
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

// Bits of an entry's status, from linux/netfilter/nf_conntrack_common.h.
const (
	seenReply = 1 << 1
	assured   = 1 << 2 // the kernel keeps the entry if the table is full
	confirmed = 1 << 3
	natted    = 1<<4 | 1<<5 // the source or the destination is translated
)

// Flags of both ends, from linux/netfilter/nf_conntrack_tcp.h. With liberal, conntrack accepts segments
// outside the window that it computes, because it has not seen the window scales of the ends. With
// closeInit, a SYN after the close or reset of the connection begins a new connection; without it, the
// SYN could belong to the old connection.
const (
	closeInit = 0x04
	liberal   = 0x08
	tcpFlags  = closeInit | liberal
)

// entryState contains the fields of a conntrack entry for a connection in one stage.
type entryState struct {
	state   uint8  // from linux/netfilter/nf_conntrack_tcp.h
	status  uint32 // bits
	timeout uint32 // seconds until the entry expires; the kernel's defaults
}

// entryStates contains an entry's fields by the connection's stage. The statuses make nat ignore the
// connection, because nat begins no translation for an entry with SEEN_REPLY or for a confirmed one.
var entryStates = map[Stage]entryState{
	Requested: {1, confirmed, 120},
	Answered:  {2, confirmed | seenReply, 60},
	Open:      {3, confirmed | seenReply | assured, 5 * 24 * 60 * 60},
	Ended:     {4, confirmed | seenReply | assured, 120},
}

// encodeNew returns the body of a message that creates a connection's entry.
func encodeNew(c Connection) []byte {
	as, b := entryStates[c.Stage], newBody(c.Client.Addr())
	encodeTuple(b, attributeOriginal, c.Client, c.Server)
	encodeTuple(b, attributeReply, c.Server, c.Client)
	b.Number(attributeStatus, as.status)
	b.Number(attributeTimeout, as.timeout)
	b.Nested(attributeProtocol, func() {
		b.Nested(protocolTCP, func() {
			b.Bytes(tcpState, []byte{as.state})
			b.Bytes(tcpFlagsOriginal, []byte{tcpFlags, tcpFlags}) // flags and mask
			b.Bytes(tcpFlagsReply, []byte{tcpFlags, tcpFlags})
		})
	})
	return b.Content
}

// encodeUpdate returns the body of a message that gives an existing entry the timeout and status of an
// open connection. The entry's translation stays.
func encodeUpdate(c Connection) []byte {
	as, b := entryStates[Open], newBody(c.Client.Addr())
	encodeTuple(b, attributeOriginal, c.Client, c.Server)
	b.Number(attributeStatus, as.status)
	b.Number(attributeTimeout, as.timeout)
	return b.Content
}

// encodeDelete returns the body of a message that deletes this entry, but not a later entry with the
// same addresses and ports.
func encodeDelete(entry Entry) []byte {
	b := newBody(entry.Client.Addr())
	encodeTuple(b, attributeOriginal, entry.Client, entry.Server)
	b.Number(attributeID, entry.id)
	return b.Content
}

func newBody(address netip.Addr) *nfnetlink.Batch {
	family := byte(unix.AF_INET6)
	if address.Is4() {
		family = unix.AF_INET
	}
	return &nfnetlink.Batch{Content: header(family)}
}

// header returns a struct nfgenmsg.
func header(family byte) []byte { return []byte{family, unix.NFNETLINK_V0, 0, 0} }

func encodeTuple(b *nfnetlink.Batch, attribute uint16, source, destination netip.AddrPort) {
	from, to := uint16(ipv4Source), uint16(ipv4Destination)
	if !source.Addr().Is4() {
		from, to = ipv6Source, ipv6Destination
	}
	b.Nested(attribute, func() {
		b.Nested(tupleAddresses, func() {
			b.Bytes(from, source.Addr().AsSlice())
			b.Bytes(to, destination.Addr().AsSlice())
		})
		b.Nested(tupleProtocol, func() {
			b.Bytes(protocolNumber, []byte{unix.IPPROTO_TCP})
			b.Bytes(protocolSource, binary.BigEndian.AppendUint16(nil, source.Port()))
			b.Bytes(protocolDestination, binary.BigEndian.AppendUint16(nil, destination.Port()))
		})
	})
}
