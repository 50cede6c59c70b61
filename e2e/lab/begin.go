// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Begin sends the SYN of a TCP connection from a thread without capabilities, and does not wait for an
// answer. Closing the returned socket sends nothing more.
func (h *Host) Begin(c Connection) (socket *os.File, err error) {
	err = h.Do(func() error {
		return as(c.Owner, func() error {
			fd, err := unix.Socket(c.domain(), unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
			if err != nil {
				return err
			}
			socket = os.NewFile(uintptr(fd), "connection")
			if c.IgnoreResets {
				if err := filter(fd, butResets); err != nil {
					return err
				}
			}
			return unprivileged(func() error {
				if err := c.prepare(fd); err != nil {
					return err
				}
				if err := unix.Connect(fd, Sockaddr(c.To)); !errors.Is(err, unix.EINPROGRESS) {
					return err
				}
				return nil
			})
		})
	})
	if err != nil {
		return nil, fmt.Errorf("sending a SYN as %+v: %w", c, err)
	}
	return socket, nil
}

// unprivileged runs f while the thread has no effective capability.
func unprivileged(f func() error) (err error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var held [2]unix.CapUserData
	if err := unix.Capget(&header, &held[0]); err != nil {
		return fmt.Errorf("reading the thread's capabilities: %w", err)
	}
	none := held
	none[0].Effective, none[1].Effective = 0, 0
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("dropping the thread's capabilities: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Capset(&header, &held[0])) }()
	return f()
}

// ListenSilently listens at an address, and drops each SYN without an answer, as a listener with a full
// backlog does.
func (h *Host) ListenSilently(address string) (listener net.Listener, err error) {
	config := net.ListenConfig{Control: func(_, _ string, conn syscall.RawConn) (err error) {
		return errors.Join(conn.Control(func(fd uintptr) { err = filter(int(fd), nothing) }), err)
	}}
	err = h.Do(func() error {
		return whileInUse(func() (err error) {
			listener, err = config.Listen(context.Background(), "tcp", address)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("listening silently at %s: %w", address, err)
	}
	return listener, nil
}

// Filters of classic BPF for sockets, because some kernels let only privileged processes use other
// filters. A filter sees a segment from its TCP header on.
var (
	nothing   = []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	butResets = []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: 13},
		{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: uint32(RST), Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K},
		{Code: unix.BPF_RET | unix.BPF_K, K: 1 << 16},
	}
)

func filter(fd int, program []unix.SockFilter) error {
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
}

// Dial opens a TCP connection from inside the namespace, with the owner and the source address that Ask
// describes.
func (h *Host) Dial(owner Owner, from, to string) (conn *net.TCPConn, err error) {
	err = h.Do(func() error {
		dialed, err := h.dialAs(owner, "tcp", from, to)
		if err == nil {
			conn = dialed.(*net.TCPConn)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", to, err)
	}
	return conn, nil
}
