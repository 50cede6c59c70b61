// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Connection describes a connection to open, or a UDP packet to send. From is optional, and so is its
// port.
type Connection struct {
	Owner   Owner
	Network string // "tcp" or "udp"
	From    netip.AddrPort
	To      netip.AddrPort
	Mark    int

	Device       string        // interface to which the socket is bound
	Close        bool          // close in order after the server, instead of by a reset
	FreeBind     bool          // From need not be the host's own address
	IgnoreResets bool          // only Begin supports this
	Limit        time.Duration // timeout of each system call; 0 means the package's timeout
}

// Reply is the result of a Connection. It contains the server's Answer, or the error of a connection
// that was refused or not answered. Source is the client's address and port.
type Reply struct {
	Answer Answer
	Source netip.AddrPort
	Err    error
}

// Refused reports whether the connection failed with ECONNREFUSED.
func (r Reply) Refused() bool { return errors.Is(r.Err, unix.ECONNREFUSED) }

// AskAll opens connections one after another, from one thread inside the namespace. It uses blocking
// system calls, so each connection takes a tenth of the time that Ask takes.
func (h *Host) AskAll(connections []Connection) (replies []Reply, err error) {
	err = h.Do(func() error {
		for _, c := range connections {
			reply, err := c.ask(nil)
			if err != nil {
				return fmt.Errorf("connecting as %+v: %w", c, err)
			}
			replies = append(replies, reply)
		}
		return nil
	})
	return replies, err
}

// ask opens the connection, and returns the reply. It returns an error only if the connection could not
// be tried. If servers is nil, another goroutine must serve.
func (c Connection) ask(servers *Servers) (reply Reply, err error) {
	fd, accepted := -1, -1
	defer func() {
		if accepted >= 0 {
			_ = unix.Close(accepted) // after the client's socket
		}
	}()
	err = as(c.Owner, func() (err error) {
		fd, err = unix.Socket(c.domain(), map[string]int{"tcp": unix.SOCK_STREAM, "udp": unix.SOCK_DGRAM}[c.Network]|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return reply, err
	}
	defer func() { _ = unix.Close(fd) }()
	if err := c.prepare(fd); err != nil {
		return reply, err
	}
	reply.Err = uninterrupted(func() error { return unix.Connect(fd, Sockaddr(c.To)) })
	switch reply.Err {
	case unix.EISCONN: // connected while a signal interrupted the call
		reply.Err = nil
	case unix.EINPROGRESS, unix.EALREADY: // the timeout has passed
		reply.Err = unix.ETIMEDOUT
	}
	if source, err := unix.Getsockname(fd); err == nil {
		reply.Source = AddrPort(source)
	}
	if reply.Err == nil && c.Network == "udp" {
		_, reply.Err = unix.Write(fd, []byte{0})
	}
	if reply.Err == nil && servers != nil {
		accepted, reply.Err = servers.answer(fd, c)
	}
	if reply.Err == nil {
		reply.Err = receive(fd, &reply.Answer)
	}
	if reply.Err == nil && c.Close {
		reply.Err = uninterrupted(func() error {
			_, err := unix.Read(fd, make([]byte, 1)) // wait for the server's end of the connection
			return err
		})
	}
	return reply, nil
}

// prepare sets the socket's options. Unless Close is set, closing the socket resets the TCP connection,
// because a reset leaves no state that could affect a later connection.
func (c Connection) prepare(fd int) error {
	limit := unix.NsecToTimeval(cmp.Or(c.Limit, timeout).Nanoseconds())
	err := errors.Join(
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit),
	)
	if !c.Close {
		err = errors.Join(err, unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}))
	}
	if c.Mark != 0 {
		err = errors.Join(err, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, c.Mark))
	}
	if c.Device != "" {
		err = errors.Join(err, unix.BindToDevice(fd, c.Device))
	}
	if c.FreeBind {
		err = errors.Join(err, unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_FREEBIND, 1))
	}
	if c.From.Addr().IsValid() {
		err = errors.Join(err, whileInUse(func() error { return unix.Bind(fd, Sockaddr(c.From)) }))
	}
	return err
}

func receive(fd int, answer *Answer) error {
	buffer, n := make([]byte, 1024), 0
	err := uninterrupted(func() (err error) {
		n, err = unix.Read(fd, buffer)
		return err
	})
	if err != nil {
		return err
	}
	return json.Unmarshal(buffer[:n], answer)
}

// uninterrupted repeats a system call that returns EINTR. The kernel itself does not restart calls with
// a timeout.
func uninterrupted(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

func (c Connection) domain() int {
	if c.To.Addr().Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// Sockaddr converts an address to the type that system calls take.
func Sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// AddrPort converts an address that a system call returned. It returns the zero AddrPort for an address
// that is not IP.
func AddrPort(a unix.Sockaddr) netip.AddrPort {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port))
	}
	return netip.AddrPort{}
}
