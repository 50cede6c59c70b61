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

// ProxyMark is what a sidecar puts on the connections that it makes in its
// clients' names, so that the answers come back to it.
const ProxyMark = 1337

// control prepares a socket before it is bound.
type control func(network, address string, conn syscall.RawConn) error

// Transparent lets a socket have addresses that are not the host's own. It is a
// dialer's or listener's Control.
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

// Marked makes a transparent socket whose packets bear the proxy's mark.
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

// ProxyTransparently is a sidecar under TPROXY: it takes connections with
// their addresses and makes them anew, from the client's address to where the
// client wanted to go.
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
				_ = h.handOn(owner, client.(*net.TCPConn)) // the client sees its connection end
			}()
		}
	}()
	return listener, nil
}

// ListenTransparently listens for connections that are addressed to others.
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

// handOn connects a client with the application.
func (h *Host) handOn(owner Owner, client *net.TCPConn) error {
	var application net.Conn
	err := h.Do(func() error {
		return as(owner, func() (err error) {
			dialer := net.Dialer{
				Timeout:   patience,
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

// Relay hands on what either of two TCP connections sends, until the second
// has nothing more to say.
func Relay(client, server net.Conn) error {
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.(*net.TCPConn).CloseWrite()
	}()
	_, err := io.Copy(client, server)
	return err
}
