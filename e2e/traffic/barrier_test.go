// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// try makes a TCP connection that the rules may drop. Nothing answers it if an echo request
// that was sent after its SYN, on the same path, is answered first: the error is then
// os.ErrDeadlineExceeded, without waiting for a time-out.
func try(t *testing.T, host *lab.Host, c lab.Connection) lab.Reply {
	t.Helper()
	socket, err := host.Begin(c)
	if err != nil {
		return lab.Reply{Err: err}
	}
	defer socket.Close()
	if unanswered(t, host, socket, c.To.Addr()) {
		return lab.Reply{Err: os.ErrDeadlineExceeded}
	}
	lab.Check(t, socket.SetReadDeadline(time.Now().Add(lab.Patience)))
	var reply lab.Reply
	reply.Err = json.NewDecoder(socket).Decode(&reply.Answer)
	return reply
}

// unanswered reports whether nothing answers a connection that a host has begun.
func unanswered(t *testing.T, host *lab.Host, socket *os.File, to netip.Addr) bool {
	t.Helper()
	passed(t, host, to)
	raw, err := socket.SyscallConn()
	lab.Check(t, err)
	var state uint8
	lab.Check(t, raw.Control(func(fd uintptr) {
		info, infoErr := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err = infoErr; err == nil {
			state = info.State
		}
	}))
	lab.Check(t, err)
	const synSent = 2
	return state == synSent
}

// passed returns when an echo request from a host is answered: all that the host sent to that
// address before has arrived, and what the kernel there answers at once has come back.
func passed(t *testing.T, host *lab.Host, to netip.Addr) {
	t.Helper()
	lab.Check(t, host.Do(func() error { return echo(to) }))
}

// echo sends echo requests until one is answered: nothing promises that a packet arrives.
func echo(to netip.Addr) (err error) {
	family, protocol, request, reply, header := unix.AF_INET, unix.IPPROTO_ICMP, byte(8), byte(0), 20
	if to.Is6() {
		family, protocol, request, reply, header = unix.AF_INET6, unix.IPPROTO_ICMPV6, 128, 129, 0 // the kernel writes ICMPv6's checksum
	}
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	packet := []byte{request, 0, 0, 0, 0, 1, 0, 1} // id 1, sequence 1
	if to.Is4() {
		binary.BigEndian.PutUint16(packet[2:], checksum(packet))
	}
	limit := unix.NsecToTimeval(int64(500 * time.Millisecond))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		return err
	}
	buffer := make([]byte, 1500)
	for range 10 {
		if err = unix.Sendto(fd, packet, 0, lab.Sockaddr(netip.AddrPortFrom(to, 0))); err != nil {
			return err
		}
		for err == nil {
			var n int
			if n, _, err = unix.Recvfrom(fd, buffer, 0); err == nil && n > header && buffer[header] == reply {
				return nil
			}
		}
	}
	return err
}

// checksum is the Internet's (RFC 1071).
func checksum(data []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(data); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(data[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
