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

// ProxyMark is the mark of the connections that a sidecar makes from its
// clients' addresses, so that the answers are routed back to it.
const ProxyMark = 1337

// control prepares a socket before it is bound.
type control func(network, address string, conn syscall.RawConn) error

// Transparent allows a socket addresses that are not the host's own. It is the
// Control function of a dialer or listener.
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

// Marked makes a socket transparent and sets ProxyMark on its packets.
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

// ProxyTransparently runs a sidecar under TPROXY: it accepts a connection with
// its original addresses, and connects from the client's address to the
// original destination.
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
				_ = h.forward(owner, client.(*net.TCPConn)) // the client sees its connection end
			}()
		}
	}()
	return listener, nil
}

// ListenTransparently listens for connections to addresses of other hosts.
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

// StopListening refuses connections from now on and closes the listener. Close
// alone is not enough: a child process between fork and exec holds a copy of
// the socket, which accepts connections until then and resets them.
func StopListening(listener net.Listener) error {
	raw, err := listener.(*net.TCPListener).SyscallConn()
	if err != nil {
		return err
	}
	var shutdownErr error
	err = raw.Control(func(fd uintptr) { shutdownErr = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
	return errors.Join(err, shutdownErr, listener.Close())
}

// forward connects a client to the application.
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

// Relay copies between two TCP connections in both directions, until the server
// closes its side.
func Relay(client, server net.Conn) error {
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.(*net.TCPConn).CloseWrite()
	}()
	_, err := io.Copy(client, server)
	return err
}
