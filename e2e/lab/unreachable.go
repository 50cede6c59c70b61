// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Unreachable is an ICMP error about a segment: its port can't be reached.
type Unreachable struct {
	From netip.Addr
	Of   Segment
}

// Send sends the error to the segment's sender, from the calling thread's namespace.
func (u Unreachable) Send() error {
	segment := u.Of.Bytes()
	from, to := u.Of.From.Addr(), u.Of.To.Addr()
	if from.Is4() {
		quoted := []byte{0x45, 0, 0, byte(20 + len(segment)), 0, 0, 0, 0, 64, unix.IPPROTO_TCP, 0, 0}
		quoted = append(append(quoted, from.AsSlice()...), to.AsSlice()...)
		binary.BigEndian.PutUint16(quoted[10:], checksum(quoted))
		message := append([]byte{3, 3, 0, 0, 0, 0, 0, 0}, append(quoted, segment...)...)
		binary.BigEndian.PutUint16(message[2:], checksum(message))
		return sendRaw(unix.IPPROTO_ICMP, u.From, from, message)
	}
	quoted := []byte{0x60, 0, 0, 0, 0, byte(len(segment)), unix.IPPROTO_TCP, 64}
	quoted = append(append(quoted, from.AsSlice()...), to.AsSlice()...)
	// The kernel computes the checksum.
	return sendRaw(unix.IPPROTO_ICMPV6, u.From, from, append([]byte{1, 4, 0, 0, 0, 0, 0, 0}, append(quoted, segment...)...))
}
