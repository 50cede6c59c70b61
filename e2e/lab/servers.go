// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Servers contains sockets that answer clients on the thread that calls Ask, so no thread must wake
// another one. The sockets may be in several namespaces.
type Servers struct {
	asked  sync.Mutex
	epoll  int
	served map[int32]server // by the socket's descriptor
}

type server struct {
	owner   Owner
	network string
	name    string
}

// NewServers returns a Servers without sockets. The caller must call Close.
func NewServers() (*Servers, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("creating servers: %w", err)
	}
	return &Servers{epoll: epoll, served: map[int32]server{}}, nil
}

// Add adds a server with a socket as ServeProxy opens it.
func (s *Servers) Add(h *Host, owner Owner, network, address, name string) error {
	socket, err := h.listen(owner, network, address, Transparent)
	if err != nil {
		return fmt.Errorf("serving %s: %w", name, err)
	}
	fd, err := duplicate(socket)
	if err = errors.Join(err, socket.Close()); err == nil {
		s.served[int32(fd)] = server{owner, network, name}
		err = s.watch(fd)
	}
	return err
}

// duplicate returns a non-blocking copy of a socket's descriptor, which stays open when the socket is
// closed.
func duplicate(conn syscall.Conn) (fd int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	controlErr := raw.Control(func(original uintptr) { fd, err = unix.FcntlInt(original, unix.F_DUPFD_CLOEXEC, 0) })
	return fd, errors.Join(controlErr, err)
}

func (s *Servers) watch(fd int) error {
	return unix.EpollCtl(s.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
}

// Close closes all servers.
func (s *Servers) Close() {
	for fd := range s.served {
		_ = unix.Close(int(fd))
	}
	_ = unix.Close(s.epoll)
}

// Ask connects to the servers from a host, and returns the reply. The client ends a TCP connection by a
// reset, unless c.Close is set.
func (s *Servers) Ask(h *Host, c Connection) (reply Reply, err error) {
	s.asked.Lock()
	defer s.asked.Unlock()
	err = h.Do(func() error {
		reply, err = c.ask(s)
		return err
	})
	return reply, err
}

// answer serves all sockets until the client can read its reply. It returns the descriptor of the
// accepted connection, which the caller must close after the client's, or -1.
func (s *Servers) answer(client int, c Connection) (accepted int, err error) {
	accepted = -1
	if err := s.watch(client); err != nil {
		return accepted, err
	}
	defer func() { err = errors.Join(err, unix.EpollCtl(s.epoll, unix.EPOLL_CTL_DEL, client, nil)) }()
	limit := cmp.Or(c.Limit, timeout)
	for deadline := time.Now().Add(limit); limit > 0; limit = time.Until(deadline) {
		events := make([]unix.EpollEvent, 1)
		n, err := unix.EpollWait(s.epoll, events, int(limit.Milliseconds())+1)
		switch {
		case n < 1 && err != nil && err != unix.EINTR:
			return accepted, err
		case n < 1:
			continue
		case events[0].Fd == int32(client):
			return accepted, nil
		}
		at := int(events[0].Fd)
		served := s.served[events[0].Fd]
		if served.network == "udp" {
			served.reply(at)
			continue
		}
		if accepted >= 0 {
			_ = unix.Close(accepted) // the connection of an earlier client, which has ended
		}
		accepted = served.accept(at)
	}
	return accepted, unix.ETIMEDOUT
}

// accept accepts a pending connection, and writes the answer. It returns the connection's descriptor, or
// -1 if no connection is pending. If the client has already ended, that is no error.
func (s server) accept(listener int) (fd int) {
	fd = -1
	var client unix.Sockaddr
	err := as(s.owner, func() (err error) {
		fd, client, err = unix.Accept4(listener, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
		return err
	})
	if err != nil {
		return -1
	}
	local, err := unix.Getsockname(fd)
	if err == nil {
		answer := Answer{Server: s.name, Client: AddrPort(client), Local: AddrPort(local)}
		answer.OriginalDst, _ = originalDst(fd, answer.Local.Addr().Is4()) // zero if the connection was not redirected
		text, _ := json.Marshal(answer)
		_, _ = unix.Write(fd, text)
	}
	return fd
}

// reply answers a pending packet, if there is one, from the address to which the packet was sent.
func (s server) reply(fd int) {
	packet, control := make([]byte, 1), make([]byte, unix.CmsgSpace(unix.SizeofInet6Pktinfo))
	_, length, _, client, err := unix.Recvmsg(fd, packet, control, unix.MSG_DONTWAIT)
	if err != nil {
		return
	}
	byRoute(control, length)
	text, _ := json.Marshal(Answer{Server: s.name, Client: AddrPort(client)})
	_ = unix.Sendmsg(fd, text, control[:length], client, unix.MSG_DONTWAIT)
}
