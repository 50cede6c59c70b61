// SPDX-License-Identifier: Apache-2.0

package search

import (
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// Not in package unix.
const (
	protocolSMC = -1
	smcIPv6     = 1
)

// dial is how a socket connects, or listens where to is missing. No call waits.
type dial struct {
	from, to    netip.AddrPort
	protocol    int // TCP's by default
	reuse       int // SO_REUSEADDR or SO_REUSEPORT
	device      string
	freebind    bool // the address may be another host's
	sourceRoute bool
	fastOpen    bool
	transparent bool // the same for a proxy with its capability
	mark        int
	backlog     int
}

// open returns a socket although it may be refused at once: then it keeps its port.
// Without a socket or a port, fd is -1.
func (d dial) open() (fd int, err error) {
	family := unix.AF_INET6
	if d.from.Addr().Is4() {
		family = unix.AF_INET
	}
	protocol := d.protocol
	if protocol == protocolSMC {
		if protocol = 0; family == unix.AF_INET6 {
			protocol = smcIPv6
		}
		family = unix.AF_SMC
	}
	fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return -1, err
	}
	if err := d.prepare(fd); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	switch {
	case d.fastOpen:
		return fd, unix.Sendto(fd, []byte{payload(app)}, unix.MSG_FASTOPEN|unix.MSG_NOSIGNAL, lab.Sockaddr(d.to))
	case d.to.IsValid():
		return fd, unix.Connect(fd, lab.Sockaddr(d.to))
	}
	return fd, unix.Listen(fd, d.backlog)
}

func (d dial) prepare(fd int) error {
	level, freebind, transparent := unix.SOL_IPV6, unix.IPV6_FREEBIND, unix.IPV6_TRANSPARENT
	if d.from.Addr().Is4() {
		level, freebind, transparent = unix.SOL_IP, unix.IP_FREEBIND, unix.IP_TRANSPARENT
	}
	for _, option := range []struct {
		on                 bool
		level, name, value int
	}{
		{d.reuse != 0, unix.SOL_SOCKET, d.reuse, 1},
		{d.freebind, level, freebind, 1},
		{d.transparent, level, transparent, 1},
		{d.mark != 0, unix.SOL_SOCKET, unix.SO_MARK, d.mark},
	} {
		if option.on {
			if err := unix.SetsockoptInt(fd, option.level, option.name, option.value); err != nil {
				return err
			}
		}
	}
	if d.device != "" {
		if err := unix.SetsockoptString(fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE, d.device); err != nil {
			return err
		}
	}
	if d.sourceRoute && d.from.Addr().Is4() {
		const looseSourceRoute = 131
		hop := podAddresses[0][0].As4()
		option := append([]byte{looseSourceRoute, 7, 4}, hop[:]...)
		if err := unix.SetsockoptString(fd, unix.SOL_IP, unix.IP_OPTIONS, string(append(option, 0))); err != nil {
			return err
		}
	}
	if d.sourceRoute && !d.from.Addr().Is4() {
		// A segment routing header (RFC 8754) of two segments; the second to last is the first hop.
		header := []byte{0, 4, 4, 1, 1, 0, 0, 0}
		for _, hop := range []netip.Addr{d.to.Addr(), podAddresses[0][1]} {
			header = append(header, hop.AsSlice()...)
		}
		_ = unix.SetsockoptString(fd, unix.SOL_IPV6, unix.IPV6_RTHDR, string(header)) // not every kernel has it
	}
	return unix.Bind(fd, lab.Sockaddr(d.from))
}

// reset closes a socket without a state that a later one could meet.
func reset(fd int) {
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	_ = unix.Close(fd)
}

// connected reports whether a connection is established, refused, or neither yet.
func connected(fd int) (established bool, refused error) {
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	if n, _ := unix.Poll(poll, 0); n == 0 {
		return false, nil
	}
	errno, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && errno != 0 {
		err = unix.Errno(errno)
	}
	return err == nil, err
}

// wait returns whether a condition becomes true.
func wait(limit time.Duration, condition func() bool) bool {
	for deadline := time.Now().Add(limit); !condition(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(deadline) {
			return condition()
		}
	}
	return true
}

// listener is a listening socket, and the connections that it accepted.
type listener struct {
	fd    int
	conns map[netip.AddrPort]int
}

func listen(by *lab.Process, d dial) (l *listener, err error) {
	l = &listener{conns: map[netip.AddrPort]int{}}
	return l, by.Do(func() (err error) {
		if l.fd, err = d.open(); err != nil && l.fd >= 0 {
			_ = unix.Close(l.fd)
		}
		return err
	})
}

// accept accepts what has come.
func (l *listener) accept() {
	for {
		fd, from, err := unix.Accept4(l.fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return
		}
		client := lab.AddrPort(from)
		if earlier, ok := l.conns[client]; ok {
			reset(earlier)
		}
		l.conns[client] = fd
	}
}

// accepted reports whether one is from a host. Its port may be another than the client's:
// conntrack chooses one if an earlier connection has left an entry with that port.
func (l *listener) accepted(client netip.Addr) bool {
	l.accept()
	for from := range l.conns {
		if from.Addr() == client {
			return true
		}
	}
	return false
}

// forget resets all that was accepted.
func (l *listener) forget() {
	l.accept()
	for _, fd := range l.conns {
		reset(fd)
	}
	clear(l.conns)
}

func (l *listener) close() {
	l.forget()
	_ = unix.Close(l.fd)
}
