// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// transparent permits a socket to use addresses that the pod does not have.
func transparent(network, _ string, conn syscall.RawConn) error {
	level, option := unix.SOL_IP, unix.IP_TRANSPARENT
	if network == "tcp6" {
		level, option = unix.SOL_IPV6, unix.IPV6_TRANSPARENT
	}
	return set(conn, level, option, 1)
}

// marked makes a socket transparent, and gives its packets the proxy's mark.
func marked(network, address string, conn syscall.RawConn) error {
	return errors.Join(transparent(network, address, conn), set(conn, unix.SOL_SOCKET, unix.SO_MARK, int(capture.ProxyMark)))
}

func set(conn syscall.RawConn, level, option, value int) error {
	var optionErr error
	err := conn.Control(func(fd uintptr) { optionErr = unix.SetsockoptInt(int(fd), level, option, value) })
	return errors.Join(err, optionErr)
}
