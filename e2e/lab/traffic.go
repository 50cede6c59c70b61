// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Owner is whose traffic it is. The kernel tells it from the credentials of
// the thread that makes the socket.
type Owner struct{ UID, GID int }

// Answer is what a server says about the connection that reached it.
type Answer struct {
	Server      string         // the name given to Serve
	OriginalDst netip.AddrPort // where the client wanted to go, as conntrack knows it
	Client      netip.AddrPort
}

const patience = 3 * time.Second

// Serve answers every TCP connection or UDP packet at address, inside the
// namespace, until it is closed. An empty host in address means all addresses
// of both families.
func (h *Host) Serve(network, address, name string) (io.Closer, error) {
	return h.serve(Owner{}, network, address, name, nil)
}

// ServeProxy answers as a sidecar does: in its owner's name, and with a socket
// that accepts what is addressed to others.
func (h *Host) ServeProxy(owner Owner, network, address, name string) (io.Closer, error) {
	return h.serve(owner, network, address, name, Transparent)
}

func (h *Host) serve(owner Owner, network, address, name string, control control) (closer io.Closer, err error) {
	config := net.ListenConfig{Control: control}
	err = h.Do(func() error {
		return as(owner, func() error {
			if network == "udp" {
				conn, err := config.ListenPacket(context.Background(), network, address)
				if err != nil {
					return err
				}
				closer = conn
				packets := conn.(*net.UDPConn)
				go answerPackets(packets, name)
				return tellDestination(packets)
			}
			listener, err := config.Listen(context.Background(), network, address)
			if err != nil {
				return err
			}
			closer = listener
			go answerConnections(listener, name)
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("serving %s: %w", name, err)
	}
	return closer, nil
}

func answerConnections(listener net.Listener, name string) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			answer := Answer{Server: name, Client: conn.RemoteAddr().(*net.TCPAddr).AddrPort()}
			answer.OriginalDst, _ = OriginalDst(conn.(*net.TCPConn)) // zero where nothing was redirected
			_ = json.NewEncoder(conn).Encode(answer)
		}()
	}
}

// answerPackets answers from the address that a packet was sent to: left to
// itself, the kernel would choose the one that leads back.
func answerPackets(conn *net.UDPConn, name string) {
	packet, control := make([]byte, 1), make([]byte, unix.CmsgSpace(unix.SizeofInet6Pktinfo))
	for {
		_, length, _, from, err := conn.ReadMsgUDPAddrPort(packet, control)
		if err != nil {
			return
		}
		if length == len(control) {
			clear(control[unix.CmsgLen(net.IPv6len):]) // by whatever interface leads there
		}
		reply, _ := json.Marshal(Answer{Server: name, Client: from})
		_, _, _ = conn.WriteMsgUDPAddrPort(reply, control[:length], from)
	}
}

// tellDestination has the kernel pass on where packets were sent to. A socket
// of IPv4 alone has no such option; it listens at one address anyway.
func tellDestination(conn *net.UDPConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_RECVPKTINFO, 1)
	})
}

// OriginalDst asks conntrack for a redirected connection's first destination.
func OriginalDst(conn *net.TCPConn) (netip.AddrPort, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return netip.AddrPort{}, err
	}
	const soOriginalDst = 80 // the same for both families (SO_ORIGINAL_DST, IP6T_SO_ORIGINAL_DST)
	level := unix.IPPROTO_IPV6
	if conn.LocalAddr().(*net.TCPAddr).IP.To4() != nil {
		level = unix.IPPROTO_IP
	}
	var address unix.RawSockaddrInet6 // large enough for both
	size := uint32(unsafe.Sizeof(address))
	var errno unix.Errno
	controlErr := raw.Control(func(fd uintptr) {
		_, _, errno = unix.Syscall6(unix.SYS_GETSOCKOPT, fd, uintptr(level), soOriginalDst,
			uintptr(unsafe.Pointer(&address)), uintptr(unsafe.Pointer(&size)), 0)
	})
	if controlErr != nil {
		return netip.AddrPort{}, controlErr
	}
	if errno != 0 {
		return netip.AddrPort{}, errno
	}
	port := address.Port>>8 | address.Port<<8
	if level == unix.IPPROTO_IP {
		v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(&address))
		return netip.AddrPortFrom(netip.AddrFrom4(v4.Addr), port), nil
	}
	return netip.AddrPortFrom(netip.AddrFrom16(address.Addr).Unmap(), port), nil
}

// Ask connects (or sends a packet) from inside the namespace and returns who
// answered. from is the source address, with or without a port; what is left
// out is the kernel's choice.
func (h *Host) Ask(owner Owner, network, from, to string) (Answer, error) {
	var answer Answer
	err := h.Do(func() error {
		conn, err := dialAs(owner, network, from, to)
		if err != nil {
			return err
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
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

func dialAs(owner Owner, network, from, to string) (conn net.Conn, err error) {
	dialer := net.Dialer{Timeout: patience}
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
		// A program that is being started elsewhere holds a copy of the socket
		// that had this port last, from its fork until its exec.
		for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
			conn, err = dialer.Dial(network, to)
			if !errors.Is(err, unix.EADDRINUSE) || time.Now().After(deadline) {
				return err
			}
		}
	})
	return conn, err
}

// as runs f, which makes a socket, in owner's name. Do has locked the
// goroutine to a thread, and file-system ids are a thread's own, so nobody
// else is affected.
func as(owner Owner, f func() error) (err error) {
	// The group first: a thread that is no longer root may not change it.
	if err := errors.Join(unix.Setfsgid(owner.GID), unix.Setfsuid(owner.UID)); err != nil {
		return fmt.Errorf("becoming %v: %w", owner, err)
	}
	defer func() { err = errors.Join(err, unix.Setfsuid(0), unix.Setfsgid(0)) }()
	return f()
}

// TimeConnects makes TCP connections one after the other and gives how long
// each took to be established.
func (h *Host) TimeConnects(owner Owner, to string, n int) ([]time.Duration, error) {
	times := make([]time.Duration, 0, n)
	err := h.Do(func() error {
		for range n {
			start := time.Now()
			conn, err := dialAs(owner, "tcp", "", to)
			if err != nil {
				return err
			}
			times = append(times, time.Since(start))
			// A reset keeps thousands of connections from lingering.
			err = errors.Join(conn.(*net.TCPConn).SetLinger(0), conn.Close())
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", to, err)
	}
	return times, nil
}
