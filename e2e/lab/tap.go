// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// Tap receives a copy of each IP packet that arrives on an interface, before the host's rules see the
// packet.
type Tap struct {
	fd     int
	buffer []byte
}

// Arrived is a packet that arrived. For a packet that is not TCP, its Segment contains only the
// addresses and, if the protocol has ports, the ports.
type Arrived struct {
	Segment
	DSCP, HopLimit byte
	Protocol       byte
	Later          bool // the packet is a fragment, but not the first one
	Type           byte // type of the ICMP message
	Payload        []byte
}

// Tap returns a Tap of one of the host's interfaces.
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

// Close closes the tap.
func (t *Tap) Close() error { return unix.Close(t.fd) }

// Read returns the packets that have arrived since the last call, without waiting for more.
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
		if a, ok := parseArrived(bytes.Clone(t.buffer[:n])); ok {
			arrived = append(arrived, a)
		}
	}
}

// parseArrived decodes the headers of a packet, up to and including the transport protocol's. It returns
// false for a packet that is malformed or not IP.
func parseArrived(packet []byte) (a Arrived, ok bool) {
	var from, to netip.Addr
	switch {
	case len(packet) >= 20 && packet[0]>>4 == 4:
		a.Protocol, a.DSCP, a.HopLimit = packet[9], packet[1]>>2, packet[8]
		a.Later = binary.BigEndian.Uint16(packet[6:])&0x1fff != 0
		from, to = netip.AddrFrom4([4]byte(packet[12:])), netip.AddrFrom4([4]byte(packet[16:]))
		packet = packet[min(int(packet[0]&0xf)*4, len(packet)):]
	case len(packet) >= 40 && packet[0]>>4 == 6:
		a.Protocol, a.DSCP, a.HopLimit = packet[6], (packet[0]<<4|packet[1]>>4)>>2, packet[7]
		from, to = netip.AddrFrom16([16]byte(packet[8:])), netip.AddrFrom16([16]byte(packet[24:]))
		packet = a.skipExtensions(packet[40:])
	default:
		return a, false
	}
	a.From, a.To = netip.AddrPortFrom(from, 0), netip.AddrPortFrom(to, 0)
	if a.Later {
		return a, true
	}
	a.Payload = packet
	switch a.Protocol {
	case unix.IPPROTO_TCP:
		if len(packet) < 20 {
			return a, false
		}
		a.Seq, a.Ack = binary.BigEndian.Uint32(packet[4:]), binary.BigEndian.Uint32(packet[8:])
		a.Flags = packet[13] & (FIN | SYN | RST | PSH | ACK)
		a.Payload = packet[min(int(packet[12]>>4)*4, len(packet)):]
	case unix.IPPROTO_UDP, unix.IPPROTO_UDPLITE:
		if len(packet) < 8 {
			return a, false
		}
		a.Payload = packet[8:]
	case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
		if len(packet) < 8 {
			return a, false
		}
		a.Type, a.Payload = packet[0], packet[8:]
		a.From = netip.AddrPortFrom(from, binary.BigEndian.Uint16(packet[4:])) // as port, the identifier of an echo message
		return a, true
	default:
		return a, true
	}
	a.From = netip.AddrPortFrom(from, binary.BigEndian.Uint16(packet[0:]))
	a.To = netip.AddrPortFrom(to, binary.BigEndian.Uint16(packet[2:]))
	return a, true
}

// skipExtensions returns the packet after IPv6's extension headers, and sets a.Protocol and a.Later.
func (a *Arrived) skipExtensions(packet []byte) []byte {
	for slices.Contains([]byte{0, unix.IPPROTO_ROUTING, unix.IPPROTO_FRAGMENT, unix.IPPROTO_DSTOPTS}, a.Protocol) && len(packet) >= 8 {
		length := (int(packet[1]) + 1) * 8
		if a.Protocol == unix.IPPROTO_FRAGMENT {
			a.Later, length = binary.BigEndian.Uint16(packet[2:])&0xfff8 != 0, 8
		}
		a.Protocol, packet = packet[0], packet[min(length, len(packet)):]
	}
	return packet
}
