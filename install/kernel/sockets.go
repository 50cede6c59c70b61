// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Socket is a TCP socket that listens, or whose connection begins, is open or closes.
type Socket struct {
	Local, Remote netip.AddrPort
	State         SocketState
	Orphan        bool // no process holds it, because it is closing or not yet accepted
	IPv6          bool // of the family IPv6, which can have IPv4 connections, too
	UID           uint32
}

// SocketState is the state of a socket, with the numbers of include/net/tcp_states.h.
type SocketState uint8

// States of sockets.
const (
	Established SocketState = 1
	SynSent     SocketState = 2
	SynReceived SocketState = 3
	FinWait1    SocketState = 4
	FinWait2    SocketState = 5
	CloseWait   SocketState = 8
	LastAck     SocketState = 9
	Listening   SocketState = 10
	Closing     SocketState = 11
)

// listed contains the states of the requested sockets, as bits. It omits TIME_WAIT, because such
// connections have ended.
const listed = 1<<Established | 1<<SynSent | 1<<SynReceived | 1<<FinWait1 | 1<<FinWait2 |
	1<<CloseWait | 1<<LastAck | 1<<Listening | 1<<Closing

// Sockets returns up to most TCP sockets of each IP family, in the calling thread's namespace. complete
// reports whether these are all.
func Sockets(ctx context.Context, most int) (sockets []Socket, complete bool, err error) {
	return socketsIn(ctx, listed, most)
}

// socketsIn returns the sockets in the given states, which are bits, and otherwise works like Sockets.
func socketsIn(ctx context.Context, states uint32, most int) (sockets []Socket, complete bool, err error) {
	complete = true
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		found, all, err := dumpEntries(ctx, unix.NETLINK_SOCK_DIAG, unix.SOCK_DIAG_BY_FAMILY, socketRequest(family, states), most, parseSocket)
		if err != nil {
			return nil, false, fmt.Errorf("listing the namespace's TCP sockets: %w", err)
		}
		sockets, complete = append(sockets, found...), complete && all
	}
	return sockets, complete, nil
}

// socketRequest returns a struct inet_diag_req_v2 for sockets in these states; see sock_diag(7).
func socketRequest(family byte, states uint32) []byte {
	const length, offset = 56, 4
	request := make([]byte, length)
	request[0], request[1] = family, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(request[offset:], states)
	return request
}

// parseSocket parses a struct inet_diag_msg, and reports whether the struct is complete; see
// sock_diag(7). It ignores the attributes after the struct.
func parseSocket(body []byte) (s Socket, ok bool) {
	const (
		state                       = 1
		sourcePort, destinationPort = 4, 6
		source, destination         = 8, 24
		uid, inode                  = 64, 68
		length                      = 72
	)
	if len(body) < length {
		return Socket{}, false
	}
	size := net.IPv6len
	if body[0] == unix.AF_INET {
		size = net.IPv4len
	}
	end := func(address, port int) netip.AddrPort {
		// An IPv6 socket can have an IPv4 connection.
		ip, _ := netip.AddrFromSlice(body[address : address+size])
		return netip.AddrPortFrom(ip.Unmap(), binary.BigEndian.Uint16(body[port:]))
	}
	return Socket{
		Local: end(source, sourcePort), Remote: end(destination, destinationPort), State: SocketState(body[state]),
		Orphan: binary.NativeEndian.Uint32(body[inode:]) == 0,
		IPv6:   body[0] == unix.AF_INET6, UID: binary.NativeEndian.Uint32(body[uid:]),
	}, true
}
