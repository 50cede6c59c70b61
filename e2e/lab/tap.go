// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Tap receives a copy of each TCP segment that arrives on an interface, before any rule
// of the host.
type Tap struct {
	fd     int
	buffer []byte
}

// Arrived is a segment that arrived, with the class of its IP header.
type Arrived struct {
	Segment
	DSCP byte
}

// Tap taps an interface of the host.
func (h *Host) Tap(name string) (tap *Tap, err error) {
	const every = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8 // in network byte order
	err = h.Do(func() error {
		link, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		tap = &Tap{fd, make([]byte, 2048)}
		return errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20),
			unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
			unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: every, Ifindex: link.Index}))
	})
	if err != nil {
		return nil, fmt.Errorf("tapping %s: %w", name, err)
	}
	return tap, nil
}

// Close ends the tap.
func (t *Tap) Close() error { return unix.Close(t.fd) }

// Read returns what arrived since the last call, without waiting for more.
func (t *Tap) Read() (arrived []Arrived, err error) {
	for {
		n, _, err := unix.Recvfrom(t.fd, t.buffer, 0)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return arrived, nil
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, fmt.Errorf("reading what arrived: %w", err)
		}
		if a, ok := parseArrived(t.buffer[:n]); ok {
			arrived = append(arrived, a)
		}
	}
}

// parseArrived knows no extension headers of IPv6: they need a capability.
func parseArrived(packet []byte) (a Arrived, ok bool) {
	var class byte
	var from, to netip.Addr
	switch {
	case len(packet) >= 20 && packet[0]>>4 == 4 && packet[9] == unix.IPPROTO_TCP:
		class = packet[1]
		from, to = netip.AddrFrom4([4]byte(packet[12:])), netip.AddrFrom4([4]byte(packet[16:]))
		packet = packet[min(int(packet[0]&0xf)*4, len(packet)):]
	case len(packet) >= 40 && packet[0]>>4 == 6 && packet[6] == unix.IPPROTO_TCP:
		class = packet[0]<<4 | packet[1]>>4
		from, to = netip.AddrFrom16([16]byte(packet[8:])), netip.AddrFrom16([16]byte(packet[24:]))
		packet = packet[40:]
	}
	if len(packet) < 20 || !from.IsValid() {
		return Arrived{}, false
	}
	return Arrived{DSCP: class >> 2, Segment: Segment{
		From:  netip.AddrPortFrom(from, binary.BigEndian.Uint16(packet[0:])),
		To:    netip.AddrPortFrom(to, binary.BigEndian.Uint16(packet[2:])),
		Seq:   binary.BigEndian.Uint32(packet[4:]),
		Ack:   binary.BigEndian.Uint32(packet[8:]),
		Flags: packet[13] & (FIN | SYN | RST | PSH | ACK),
	}}, true
}
