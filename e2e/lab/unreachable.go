// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"cmp"
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Unreachable is an ICMP error which says that a segment's destination port can't be reached.
type Unreachable struct {
	From     netip.Addr
	Of       Segment
	Protocol byte // protocol of the segment; 0 means TCP
}

// Send sends the error to the segment's sender, from the calling thread's namespace.
func (u Unreachable) Send() error {
	segment, protocol := u.Of.Bytes(), cmp.Or(u.Protocol, unix.IPPROTO_TCP)
	from, to := u.Of.From.Addr(), u.Of.To.Addr()
	if from.Is4() {
		quoted := []byte{0x45, 0, 0, byte(20 + len(segment)), 0, 0, 0, 0, 64, protocol, 0, 0}
		quoted = append(append(quoted, from.AsSlice()...), to.AsSlice()...)
		binary.BigEndian.PutUint16(quoted[10:], checksum(quoted))
		message := append([]byte{3, 3, 0, 0, 0, 0, 0, 0}, append(quoted, segment...)...)
		binary.BigEndian.PutUint16(message[2:], checksum(message))
		return sendRaw(unix.IPPROTO_ICMP, u.From, from, message)
	}
	quoted := []byte{0x60, 0, 0, 0, 0, byte(len(segment)), protocol, 64}
	quoted = append(append(quoted, from.AsSlice()...), to.AsSlice()...)
	// The kernel computes the checksum.
	return sendRaw(unix.IPPROTO_ICMPV6, u.From, from, append([]byte{1, 4, 0, 0, 0, 0, 0, 0}, append(quoted, segment...)...))
}

// Echo is an ICMP echo request or reply that is sent without a ping socket.
type Echo struct {
	From, To netip.Addr
	Reply    bool
	ID       uint16
	Data     string
}

// Send sends the message from the calling thread's namespace.
func (e Echo) Send() error {
	protocol, request, reply := unix.IPPROTO_ICMP, byte(8), byte(0)
	if !e.From.Is4() {
		protocol, request, reply = unix.IPPROTO_ICMPV6, 128, 129 // the kernel computes the checksum
	}
	if e.Reply {
		request = reply
	}
	message := append([]byte{request, 0, 0, 0, byte(e.ID >> 8), byte(e.ID), 0, 1}, e.Data...)
	if e.From.Is4() {
		binary.BigEndian.PutUint16(message[2:], checksum(message))
	}
	return sendRaw(protocol, e.From, e.To, message)
}
