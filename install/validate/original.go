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

// soOriginalDst has the value of SO_ORIGINAL_DST and of IP6T_SO_ORIGINAL_DST.
const soOriginalDst = 80

// originalDestination reads from conntrack the destination that a connection had before its
// redirection. x/sys has no getsockopt that returns a sockaddr, so this function calls
// GetsockoptIPv6MTUInfo, whose result begins with a sockaddr_in6. For IPv4, the kernel writes a
// sockaddr_in there, with the address at the offset of the field Flowinfo.
func originalDestination(conn *net.TCPConn) (netip.AddrPort, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("accessing the connection's socket: %w", err)
	}
	isIPv4, level := conn.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Unmap().Is4(), unix.SOL_IPV6
	if isIPv4 {
		level = unix.SOL_IP
	}
	var option *unix.IPv6MTUInfo
	var optionErr error
	err = raw.Control(func(fd uintptr) { option, optionErr = unix.GetsockoptIPv6MTUInfo(int(fd), level, soOriginalDst) })
	if err := errors.Join(err, optionErr); err != nil {
		return netip.AddrPort{}, fmt.Errorf("reading the original destination: %w", err)
	}
	address := netip.AddrFrom16(option.Addr.Addr)
	if isIPv4 {
		address = netip.AddrFrom4([4]byte(binary.NativeEndian.AppendUint32(nil, option.Addr.Flowinfo)))
	}
	port := binary.NativeEndian.AppendUint16(nil, option.Addr.Port)
	return netip.AddrPortFrom(address, binary.BigEndian.Uint16(port)), nil
}
