// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// soOriginalDst is SO_ORIGINAL_DST and IP6T_SO_ORIGINAL_DST.
const soOriginalDst = 80

// OriginalDestination reads from conntrack the destination that a connection had
// before it was redirected. x/sys has no getsockopt that returns a sockaddr, so
// original4 and original6 use those that return a struct of at least its size.
func OriginalDestination(conn *net.TCPConn) (netip.AddrPort, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("accessing the connection's socket: %w", err)
	}
	var to netip.AddrPort
	var optionErr error
	err = raw.Control(func(fd uintptr) {
		if conn.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Unmap().Is4() {
			to, optionErr = original4(int(fd))
		} else {
			to, optionErr = original6(int(fd))
		}
	})
	if err := errors.Join(err, optionErr); err != nil {
		return netip.AddrPort{}, fmt.Errorf("reading the original destination: %w", err)
	}
	return to, nil
}

// original4 reads a sockaddr_in: family, port, address.
func original4(fd int) (netip.AddrPort, error) {
	option, err := unix.GetsockoptIPv6Mreq(fd, unix.SOL_IP, soOriginalDst)
	if err != nil {
		return netip.AddrPort{}, err
	}
	sockaddr := option.Multiaddr
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(sockaddr[4:8])), binary.BigEndian.Uint16(sockaddr[2:4])), nil
}

func original6(fd int) (netip.AddrPort, error) {
	option, err := unix.GetsockoptIPv6MTUInfo(fd, unix.SOL_IPV6, soOriginalDst)
	if err != nil {
		return netip.AddrPort{}, err
	}
	port := binary.NativeEndian.AppendUint16(nil, option.Addr.Port)
	return netip.AddrPortFrom(netip.AddrFrom16(option.Addr.Addr), binary.BigEndian.Uint16(port)), nil
}
