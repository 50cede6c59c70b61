// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// connects is how many connections are made in a row, in each round.
const connects = 200

// app owns the connections; the rules do not exempt it.
var app = lab.Owner{UID: 1000, GID: 1000}

// connect times connections for which the kernel goes through the whole list:
// captured ones, and those that the last value excludes.
func (l *list) connect() error {
	sidecar := listening{l.pod, "127.0.0.1:15001"}
	captured, err := sidecar.time(l.pod, capturedServer)
	if err != nil {
		return err
	}
	l.captured = append(l.captured, captured...)
	if l.n == 0 {
		return nil // nothing is excluded
	}
	server := listening{l.peer, excludedServer.String()}
	excluded, err := server.time(l.pod, excludedServer)
	l.excluded = append(l.excluded, excluded...)
	return err
}

// listening is where connections are accepted.
type listening struct {
	host    *lab.Host
	address string
}

// time makes connections from a pod, one after the other, and returns how long
// each took to be established.
func (s listening) time(from *lab.Host, to netip.AddrPort) (took []time.Duration, err error) {
	var listener net.Listener
	err = s.host.Do(func() (err error) {
		listener, err = net.Listen("tcp4", s.address)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	defer func() { err = errors.Join(err, listener.Close()) }()
	err = from.Do(func() error {
		for range connects {
			t, err := connectOnce(to, listener)
			if err != nil {
				return err
			}
			took = append(took, t)
		}
		return nil
	})
	return took, err
}

// connectOnce times the system call alone: Go's own dialling takes longer than
// the kernel's. The other end is accepted afterwards, by the same thread, so
// that no other one competes for a processor meanwhile.
func connectOnce(to netip.AddrPort, listener net.Listener) (took time.Duration, err error) {
	fd, err := socketOf(app)
	if err != nil {
		return 0, err
	}
	// A reset keeps thousands of connections from lingering.
	linger := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	defer func() { err = errors.Join(err, linger, unix.Close(fd)) }()
	address := &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}
	start := time.Now()
	err = unix.Connect(fd, address)
	took = time.Since(start)
	if err != nil {
		return 0, fmt.Errorf("connecting to %s: %w", to, err)
	}
	conn, err := listener.Accept()
	if err != nil {
		return 0, fmt.Errorf("accepting a connection to %s: %w", to, err)
	}
	return took, conn.Close()
}

// socketOf creates a socket with the owner's ids. File-system ids belong to one
// thread, and Host.Do keeps the thread.
func socketOf(owner lab.Owner) (fd int, err error) {
	// The group first: a thread that is no longer root may not change it.
	if err := errors.Join(unix.Setfsgid(owner.GID), unix.Setfsuid(owner.UID)); err != nil {
		return 0, fmt.Errorf("becoming %v: %w", owner, err)
	}
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	return fd, errors.Join(err, unix.Setfsuid(0), unix.Setfsgid(0))
}
