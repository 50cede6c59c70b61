// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// ProxyMark is the packet mark of the connections that a sidecar opens from its clients' addresses. By
// the mark, the answers are routed back to the sidecar.
const ProxyMark = 1337

// control configures a socket before it is bound, as the field Control of a net.Dialer or
// net.ListenConfig.
type control func(network, address string, conn syscall.RawConn) error

// Transparent lets a socket use addresses that are not the host's own (IP_TRANSPARENT). It has the type
// control.
func Transparent(network, _ string, conn syscall.RawConn) error {
	var optionErr error
	err := conn.Control(func(fd uintptr) {
		level, option := unix.SOL_IP, unix.IP_TRANSPARENT
		if network == "tcp6" || network == "udp6" {
			level, option = unix.SOL_IPV6, unix.IPV6_TRANSPARENT
		}
		optionErr = unix.SetsockoptInt(int(fd), level, option, 1)
	})
	return errors.Join(err, optionErr)
}

// Marked calls Transparent, and sets ProxyMark on the socket's packets.
func Marked(network, address string, conn syscall.RawConn) error {
	if err := Transparent(network, address, conn); err != nil {
		return err
	}
	var optionErr error
	err := conn.Control(func(fd uintptr) {
		optionErr = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, ProxyMark)
	})
	return errors.Join(err, optionErr)
}

// ProxyTransparently runs a sidecar for TPROXY. The sidecar accepts connections with their original
// addresses, and connects to the original destination from the client's address.
func (h *Host) ProxyTransparently(owner Owner, address string) (net.Listener, error) {
	listener, err := h.ListenTransparently(owner, address)
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer client.Close()
				_ = h.forward(owner, client.(*net.TCPConn)) // an error needs no report, because the client sees that its connection ends
			}()
		}
	}()
	return listener, nil
}

// ListenTransparently returns a listener that accepts connections to addresses of other hosts.
func (h *Host) ListenTransparently(owner Owner, address string) (listener net.Listener, err error) {
	err = h.Do(func() error {
		return as(owner, func() (err error) {
			config := net.ListenConfig{Control: Transparent}
			listener, err = config.Listen(context.Background(), "tcp", address)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("listening as a proxy: %w", err)
	}
	return listener, nil
}

// StopListening closes a listener, so that further connections are refused. Close is not enough, because
// a child process between fork and exec has a copy of the socket, which would accept connections and
// then reset them.
func StopListening(listener net.Listener) error {
	raw, err := listener.(*net.TCPListener).SyscallConn()
	if err != nil {
		return err
	}
	var shutdownErr error
	err = raw.Control(func(fd uintptr) { shutdownErr = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
	return errors.Join(err, shutdownErr, listener.Close())
}

// forward connects to a client's original destination, and copies the data in both directions.
func (h *Host) forward(owner Owner, client *net.TCPConn) error {
	var application net.Conn
	err := h.Do(func() error {
		return as(owner, func() (err error) {
			dialer := net.Dialer{
				Timeout:   timeout,
				Control:   Marked,
				LocalAddr: &net.TCPAddr{IP: client.RemoteAddr().(*net.TCPAddr).IP},
			}
			application, err = dialer.Dial("tcp", client.LocalAddr().String())
			return err
		})
	})
	if err != nil {
		return err
	}
	defer application.Close()
	return Relay(client, application)
}

// Relay copies data between two TCP connections in both directions, until the server closes its side.
func Relay(client, server net.Conn) error {
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.(*net.TCPConn).CloseWrite()
	}()
	_, err := io.Copy(client, server)
	return err
}
