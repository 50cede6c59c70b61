// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Flags of a Segment.
const (
	FIN byte = 1 << iota
	SYN
	RST
	PSH
	ACK
)

// Segment is a TCP segment that no socket sends.
type Segment struct {
	From, To netip.AddrPort
	Flags    byte
	Data     string

	// Signed adds an MD5 signature (RFC 2385). A receiver that expects none
	// drops the segment without an answer.
	Signed bool
}

// Inject sends a segment from inside the namespace, through its rules.
func (h *Host) Inject(s Segment) error {
	return h.Do(func() error {
		family, to := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Addr: s.To.Addr().As16()})
		if s.To.Addr().Is4() {
			family, to = unix.AF_INET, &unix.SockaddrInet4{Addr: s.To.Addr().As4()}
		}
		fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
		if err != nil {
			return fmt.Errorf("opening a raw socket: %w", err)
		}
		defer func() { _ = unix.Close(fd) }()
		if err := unix.Sendto(fd, s.bytes(), 0, to); err != nil {
			return fmt.Errorf("sending a segment to %s: %w", s.To, err)
		}
		return nil
	})
}

func (s Segment) bytes() []byte {
	const header, signature = 20, 20
	length := header
	if s.Signed {
		length += signature
	}
	segment := make([]byte, length, length+len(s.Data))
	binary.BigEndian.PutUint16(segment[0:], s.From.Port())
	binary.BigEndian.PutUint16(segment[2:], s.To.Port())
	binary.BigEndian.PutUint32(segment[4:], 1000)
	binary.BigEndian.PutUint32(segment[8:], 2000)
	segment[12], segment[13] = byte(length/4)<<4, s.Flags
	binary.BigEndian.PutUint16(segment[14:], 1024)
	if s.Signed {
		segment[header], segment[header+1] = 19, 18 // two bytes of padding follow the option
	}
	segment = append(segment, s.Data...)
	binary.BigEndian.PutUint16(segment[16:], s.checksum(segment))
	return segment
}

// checksum returns TCP's, which covers the family's pseudo-header.
func (s Segment) checksum(segment []byte) uint16 {
	covered := append(s.From.Addr().AsSlice(), s.To.Addr().AsSlice()...)
	covered = append(covered, 0, unix.IPPROTO_TCP, 0, byte(len(segment)))
	covered = append(covered, segment...)
	covered = append(covered, make([]byte, len(covered)%2)...)
	var sum uint32
	for i := 0; i < len(covered); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(covered[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
