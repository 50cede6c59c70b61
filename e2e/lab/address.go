// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"golang.org/x/sys/unix"
)

// FreeAddress returns an address, as IP:PORT, at which no program listens. Its IP is random in
// 127.0.0.0/8, so another program is unlikely to take the port before the caller listens.
func FreeAddress() (string, error) {
	host := [4]byte{127, byte(1 + rand.IntN(254)), byte(rand.IntN(256)), byte(1 + rand.IntN(254))}
	port, err := freePort(host)
	if err != nil {
		return "", fmt.Errorf("finding a port: %w", err)
	}
	return netip.AddrPortFrom(netip.AddrFrom4(host), port).String(), nil
}

// freePort returns a port that is free at a host's address. It binds a socket, but never listens,
// because a child process between fork and exec has a copy of the socket. A copy of a listener would
// keep the port in use. A copy of a bound socket does not, because Go's listeners set SO_REUSEADDR.
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
