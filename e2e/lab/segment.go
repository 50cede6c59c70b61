// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// TCP flags of a Segment.
const (
	FIN byte = 1 << iota
	SYN
	RST
	PSH
	ACK
)

// Segment is a TCP segment that is sent without a TCP socket.
type Segment struct {
	From, To netip.AddrPort
	Flags    byte
	Seq, Ack uint32 // if they are 0, Bytes writes 1000 and 2000
	Data     string

	// Signed adds an MD5 signature (RFC 2385). A receiver that expects none
	// drops the segment without an answer.
	Signed bool
}

// Inject sends a segment from inside the namespace. The namespace's rules see the segment.
func (h *Host) Inject(s Segment) error { return h.Do(s.Send) }

// Send sends the segment from the calling thread's namespace. From may be another host's address.
func (s Segment) Send() error {
	return sendRaw(unix.IPPROTO_TCP, s.From.Addr(), s.To.Addr(), s.Bytes())
}

// sendRaw sends an IP packet through a raw socket. packet is the content after the IP header.
func sendRaw(protocol int, from, to netip.Addr, packet []byte) (err error) {
	source := Sockaddr(netip.AddrPortFrom(from, 0))
	family, level, transparent := unix.AF_INET6, unix.SOL_IPV6, unix.IPV6_TRANSPARENT
	if from.Is4() {
		family, level, transparent = unix.AF_INET, unix.SOL_IP, unix.IP_TRANSPARENT
	}
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return fmt.Errorf("opening a raw socket: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	if err := errors.Join(unix.SetsockoptInt(fd, level, transparent, 1), unix.Bind(fd, source)); err != nil {
		return fmt.Errorf("preparing a raw socket: %w", err)
	}
	if err := unix.Sendto(fd, packet, 0, Sockaddr(netip.AddrPortFrom(to, 0))); err != nil {
		return fmt.Errorf("sending a packet to %s: %w", to, err)
	}
	return nil
}

// Bytes returns the encoded segment, which begins with the TCP header.
func (s Segment) Bytes() []byte {
	const header, signature = 20, 20
	length := header
	if s.Signed {
		length += signature
	}
	segment := make([]byte, length, length+len(s.Data))
	binary.BigEndian.PutUint16(segment[0:], s.From.Port())
	binary.BigEndian.PutUint16(segment[2:], s.To.Port())
	binary.BigEndian.PutUint32(segment[4:], cmp.Or(s.Seq, 1000))
	binary.BigEndian.PutUint32(segment[8:], cmp.Or(s.Ack, 2000))
	segment[12], segment[13] = byte(length/4)<<4, s.Flags
	binary.BigEndian.PutUint16(segment[14:], 1024)
	if s.Signed {
		segment[header], segment[header+1] = 19, 18 // two bytes of padding follow the option
	}
	segment = append(segment, s.Data...)
	// TCP's checksum includes the pseudo-header of the IP family.
	covered := append(s.From.Addr().AsSlice(), s.To.Addr().AsSlice()...)
	covered = append(covered, 0, unix.IPPROTO_TCP, 0, byte(len(segment)))
	binary.BigEndian.PutUint16(segment[16:], checksum(append(covered, segment...)))
	return segment
}

// checksum returns the Internet checksum (RFC 1071).
func checksum(covered []byte) uint16 {
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
