// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"golang.org/x/sys/unix"
)

// FreeAddress returns an address for a program that is about to listen. Each
// address has a random host in 127.0.0.0/8, so that another program is unlikely
// to take the port first.
func FreeAddress() (string, error) {
	host := [4]byte{127, byte(1 + rand.IntN(254)), byte(rand.IntN(256)), byte(1 + rand.IntN(254))}
	port, err := freePort(host)
	if err != nil {
		return "", fmt.Errorf("finding a port: %w", err)
	}
	return netip.AddrPortFrom(netip.AddrFrom4(host), port).String(), nil
}

// freePort binds a socket and never listens: a child process between fork and exec has a
// copy of it. That copy does not keep a listener with SO_REUSEADDR, as Go sets it, from the
// port; a copy of a listener would.
func freePort(host [4]byte) (port uint16, err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return 0, err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: host}); err != nil {
		return 0, err
	}
	bound, err := unix.Getsockname(fd)
	if err != nil {
		return 0, err
	}
	return uint16(bound.(*unix.SockaddrInet4).Port), nil
}
