// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"net/netip"
	"slices"
)

// Connection is a TCP connection as conntrack describes it. Client is the end that began the
// connection.
type Connection struct {
	Client, Server netip.AddrPort
	Stage          Stage
}

// Stage says how far a connection has progressed.
type Stage uint8

// Stages of connections.
const (
	Requested Stage = iota // the namespace sent a SYN and awaits the SYN-ACK
	Answered               // the namespace sent a SYN-ACK and awaits the ACK
	Open                   // established, or closing while a process holds the socket
	Ended                  // closing without a process, so the kernel completes it
)

// Connections returns the connections of the sockets. A connection within the namespace has two
// sockets, and is returned only once.
func Connections(sockets []Socket) []Connection {
	listeners := map[netip.AddrPort]bool{}
	for _, s := range sockets {
		if s.State == Listening {
			listeners[s.Local] = true
		}
	}
	connections := make([]Connection, 0, len(sockets))
	seen := make(map[[2]netip.AddrPort]bool, len(sockets))
	add := func(s Socket, client, server netip.AddrPort) {
		if !seen[[2]netip.AddrPort{client, server}] && !seen[[2]netip.AddrPort{server, client}] {
			seen[[2]netip.AddrPort{client, server}] = true
			connections = append(connections, Connection{client, server, s.stage()})
		}
	}
	for _, s := range sockets {
		if s.State != Listening && s.isServer(listeners) {
			add(s, s.Remote, s.Local)
		}
	}
	// The sockets of clients come second, because for a connection within the namespace, only the
	// server's socket shows which end is the server.
	for _, s := range sockets {
		if s.State != Listening && !s.isServer(listeners) {
			add(s, s.Local, s.Remote)
		}
	}
	return connections
}

// isServer reports whether the socket is the server's end of a connection, because it has received a
// SYN, or because a listening socket has the same address and port or the same port on all addresses.
func (s Socket) isServer(listeners map[netip.AddrPort]bool) bool {
	switch s.State {
	case SynReceived:
		return true
	case SynSent:
		return false
	}
	addresses := []netip.Addr{s.Local.Addr(), netip.IPv4Unspecified(), netip.IPv6Unspecified()}
	return slices.ContainsFunc(addresses, func(a netip.Addr) bool { return listeners[netip.AddrPortFrom(a, s.Local.Port())] })
}

func (s Socket) stage() Stage {
	switch s.State {
	case SynSent:
		return Requested
	case SynReceived:
		return Answered
	case FinWait1, FinWait2, LastAck, Closing:
		if s.Orphan {
			return Ended
		}
	}
	return Open
}

// Orphans returns those entries whose connection has no socket.
func Orphans(entries []Entry, sockets []Socket) []Entry {
	ends := make(map[[2]netip.AddrPort]bool, len(sockets))
	for _, s := range sockets {
		ends[[2]netip.AddrPort{s.Local, s.Remote}] = true
	}
	return slices.DeleteFunc(entries, func(e Entry) bool {
		return ends[[2]netip.AddrPort{e.Client, e.Server}] || ends[[2]netip.AddrPort{e.Server, e.Client}]
	})
}
