// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Owner is the user and group of a socket, which the kernel takes from the thread that creates the
// socket.
type Owner struct{ UID, GID int }

// Answer is a server's report about the connection, or packet, that has reached it.
type Answer struct {
	Server      string         // name of the server, as passed to Serve
	OriginalDst netip.AddrPort // destination before a redirection, from conntrack
	Client      netip.AddrPort
	Local       netip.AddrPort // address of the server's end of a TCP connection
}

const timeout = 3 * time.Second

// Serve answers every TCP connection or UDP packet at address, inside the namespace, until the returned
// Closer is closed. If address has no host, the server uses all addresses of both families.
func (h *Host) Serve(network, address, name string) (io.Closer, error) {
	return h.serve(Owner{}, network, address, name, nil)
}

// ServeProxy answers like a sidecar. Its socket belongs to owner, and accepts packets to addresses of
// other hosts.
func (h *Host) ServeProxy(owner Owner, network, address, name string) (io.Closer, error) {
	return h.serve(owner, network, address, name, Transparent)
}

func (h *Host) serve(owner Owner, network, address, name string, control control) (io.Closer, error) {
	socket, err := h.listen(owner, network, address, control)
	if err != nil {
		return nil, fmt.Errorf("serving %s: %w", name, err)
	}
	switch socket := socket.(type) {
	case *net.UDPConn:
		go answerPackets(socket, name)
	case *net.TCPListener:
		go answerConnections(socket, owner, name)
	}
	return socket, nil
}

// listening is a UDP socket or a TCP listener.
type listening interface {
	syscall.Conn
	io.Closer
}

func (h *Host) listen(owner Owner, network, address string, control control) (socket listening, err error) {
	config := net.ListenConfig{Control: control}
	try := func() error {
		if network == "udp" {
			conn, err := config.ListenPacket(context.Background(), network, address)
			if err != nil {
				return err
			}
			socket = conn.(*net.UDPConn)
			return receiveDestinations(conn.(*net.UDPConn))
		}
		listener, err := config.Listen(context.Background(), network, address)
		if err == nil {
			socket = listener.(*net.TCPListener)
		}
		return err
	}
	err = h.Do(func() error { return as(owner, func() error { return whileInUse(try) }) })
	return socket, err
}

// answerConnections accepts and answers connections. It becomes the owner to accept, because an accepted
// socket belongs to the user of the thread that accepts it.
func answerConnections(listener net.Listener, owner Owner, name string) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for {
		var conn net.Conn
		err := as(owner, func() (err error) {
			conn, err = listener.Accept()
			return err
		})
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			answer := Answer{Server: name, Client: conn.RemoteAddr().(*net.TCPAddr).AddrPort(), Local: conn.LocalAddr().(*net.TCPAddr).AddrPort()}
			answer.OriginalDst, _ = OriginalDst(conn.(*net.TCPConn)) // zero if the connection was not redirected
			_ = json.NewEncoder(conn).Encode(answer)
			waitForACK(conn.(*net.TCPConn))
		}()
	}
}

// waitForACK waits until the peer has acknowledged all data. After the socket is closed, the kernel
// retransmits data without an owner, so rules that match the owner would not match these packets.
func waitForACK(conn *net.TCPConn) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	unsent := 1
	for deadline := time.Now().Add(timeout); unsent > 0 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		controlErr := raw.Control(func(fd uintptr) { unsent, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
		if controlErr != nil || err != nil {
			return
		}
	}
}

// answerPackets answers from the address to which a packet was sent. By default, the kernel would choose
// the source address by the route to the client.
func answerPackets(conn *net.UDPConn, name string) {
	packet, control := make([]byte, 1), make([]byte, unix.CmsgSpace(unix.SizeofInet6Pktinfo))
	for {
		_, length, _, from, err := conn.ReadMsgUDPAddrPort(packet, control)
		if err != nil {
			return
		}
		byRoute(control, length)
		reply, _ := json.Marshal(Answer{Server: name, Client: from})
		_, _, _ = conn.WriteMsgUDPAddrPort(reply, control[:length], from)
	}
}

// byRoute removes the interface from the control message of an answer, so that the route determines the
// interface.
func byRoute(control []byte, length int) {
	if length == len(control) {
		clear(control[unix.CmsgLen(net.IPv6len):])
	}
}

// receiveDestinations makes the kernel report the destination of each packet. IPv4 sockets lack this
// option, but need none, because they listen at a single address.
func receiveDestinations(conn *net.UDPConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_RECVPKTINFO, 1)
	})
}

// OriginalDst returns the destination that a redirected connection had before the redirection, from
// conntrack.
func OriginalDst(conn *net.TCPConn) (to netip.AddrPort, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return to, err
	}
	controlErr := raw.Control(func(fd uintptr) {
		to, err = originalDst(int(fd), conn.LocalAddr().(*net.TCPAddr).IP.To4() != nil)
	})
	return to, errors.Join(controlErr, err)
}

func originalDst(fd int, byIPv4 bool) (netip.AddrPort, error) {
	const soOriginalDst = 80 // the same for both families (SO_ORIGINAL_DST, IP6T_SO_ORIGINAL_DST)
	level := unix.IPPROTO_IPV6
	if byIPv4 {
		level = unix.IPPROTO_IP
	}
	var address unix.RawSockaddrInet6 // large enough for both
	size := uint32(unsafe.Sizeof(address))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), soOriginalDst,
		uintptr(unsafe.Pointer(&address)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return netip.AddrPort{}, errno
	}
	port := address.Port>>8 | address.Port<<8
	if byIPv4 {
		v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(&address))
		return netip.AddrPortFrom(netip.AddrFrom4(v4.Addr), port), nil
	}
	return netip.AddrPortFrom(netip.AddrFrom16(address.Addr).Unmap(), port), nil
}

// Ask connects, or sends a packet, to a server from inside the namespace, and returns the server's
// answer. from is the source address, with or without a port, or empty. The kernel chooses the missing
// parts.
func (h *Host) Ask(owner Owner, network, from, to string) (Answer, error) {
	var answer Answer
	err := h.Do(func() error {
		conn, err := h.dialAs(owner, network, from, to)
		if err != nil {
			return err
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
			return err
		}
		if network == "udp" {
			if _, err := conn.Write([]byte{0}); err != nil {
				return err
			}
		}
		return json.NewDecoder(conn).Decode(&answer)
	})
	if err != nil {
		return answer, fmt.Errorf("asking %s: %w", to, err)
	}
	return answer, nil
}

func (h *Host) dialAs(owner Owner, network, from, to string) (conn net.Conn, err error) {
	dialer := net.Dialer{Timeout: cmp.Or(h.Wait, timeout)}
	if from != "" {
		source, err := netip.ParseAddrPort(from)
		if err != nil {
			source = netip.AddrPortFrom(netip.MustParseAddr(from), 0)
		}
		dialer.LocalAddr = net.TCPAddrFromAddrPort(source)
		if network == "udp" {
			dialer.LocalAddr = net.UDPAddrFromAddrPort(source)
		}
	}
	err = as(owner, func() error {
		return whileInUse(func() (err error) {
			conn, err = dialer.Dial(network, to)
			return err
		})
	})
	return conn, err
}

// whileInUse repeats f while f returns EADDRINUSE, because a child process between fork and exec may
// still have a copy of the socket that used the port before.
func whileInUse(f func() error) error {
	for deadline := time.Now().Add(timeout); ; time.Sleep(time.Millisecond) {
		if err := f(); !errors.Is(err, unix.EADDRINUSE) || time.Now().After(deadline) {
			return err
		}
	}
}

// as runs f, which creates a socket, with the ids of owner. Other goroutines are not affected, because
// Do has locked this goroutine to its thread, and file-system ids belong to one thread.
func as(owner Owner, f func() error) (err error) {
	// The group comes first, because a thread whose user is not root may not change its group.
	if err := errors.Join(unix.Setfsgid(owner.GID), unix.Setfsuid(owner.UID)); err != nil {
		return fmt.Errorf("becoming %v: %w", owner, err)
	}
	defer func() { err = errors.Join(err, unix.Setfsuid(0), unix.Setfsgid(0)) }()
	return f()
}
