// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// prepareLoopback sets lo up, because redirected outbound connections use lo. With ipv6, it also adds the
// address from which the proxy connects over IPv6, unless IPv6 is disabled. undo is never nil, and undoes
// only the changes that prepareLoopback made.
func prepareLoopback(ipv6 bool) (undo func() error, err error) {
	undo = func() error { return nil }
	_, up, err := loopback()
	if err != nil {
		return undo, err
	}
	if !up {
		if err := netlink.LinkSetUp(lo()); err != nil {
			return undo, fmt.Errorf("setting lo up: %w", err)
		}
		undo = takeDown
	}
	if !ipv6 || ipv6Disabled() {
		return undo, nil
	}
	source := address(capture.ProxySourceIPv6.String())
	source.Flags = unix.IFA_F_NODAD // otherwise the kernel refuses to bind to the address for a moment
	switch err := netlink.AddrAdd(lo(), source); {
	case errors.Is(err, unix.EEXIST):
	case err != nil:
		return undo, fmt.Errorf("adding %s to lo: %w", capture.ProxySourceIPv6, err)
	default:
		undoUp := undo
		undo = func() error { return errors.Join(removeAddress(capture.ProxySourceIPv6.String()), undoUp()) }
	}
	return undo, nil
}

const loopbackIndex = 1 // of the loopback interface in each namespace, whatever its name (LOOPBACK_IFINDEX)

func lo() netlink.Link {
	return &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: loopbackIndex}}
}

// loopback returns the name of the loopback interface, and whether it is up. It uses ioctls, because
// for a netlink request the kernel takes rtnl, a lock that all namespaces share.
func loopback() (name string, up bool, err error) {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", false, fmt.Errorf("opening a socket: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Close(socket)) }()
	var request unix.Ifreq
	request.SetUint32(loopbackIndex)
	if err := errors.Join(
		unix.IoctlIfreq(socket, unix.SIOCGIFNAME, &request),
		unix.IoctlIfreq(socket, unix.SIOCGIFFLAGS, &request),
	); err != nil {
		return "", false, fmt.Errorf("reading name and flags of the loopback interface: %w", err)
	}
	return request.Name(), request.Uint16()&unix.IFF_UP != 0, nil
}

// takeDown sets lo down. It also removes the address that the kernel adds to lo when lo is set up.
func takeDown() error {
	if err := netlink.LinkSetDown(lo()); err != nil {
		return fmt.Errorf("setting lo down: %w", err)
	}
	return removeAddress("127.0.0.1/8")
}

// ipv6Disabled reports whether the kernel runs without IPv6, or a sysctl disables IPv6 on lo. If so, lo
// can have no IPv6 address.
func ipv6Disabled() bool {
	value, err := os.ReadFile("/proc/sys/net/ipv6/conf/lo/disable_ipv6")
	return err != nil || bytes.HasPrefix(value, []byte("1"))
}

// address parses a constant address.
func address(prefix string) *netlink.Addr {
	parsed, err := netlink.ParseIPNet(prefix)
	if err != nil {
		panic("podnet: " + err.Error())
	}
	return &netlink.Addr{IPNet: parsed}
}

func removeAddress(prefix string) error {
	if err := netlink.AddrDel(lo(), address(prefix)); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
		return fmt.Errorf("removing %s from lo: %w", prefix, err)
	}
	return nil
}
