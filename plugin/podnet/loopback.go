// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// prepareLoopback sets lo up, for redirected connections, and adds the address
// from which the proxy connects over IPv6. undo is never nil and undoes only what
// was done.
func prepareLoopback(ipv6 bool) (undo func() error, err error) {
	undo = func() error { return nil }
	lo, err := loopback()
	if err != nil {
		return undo, err
	}
	if lo.Attrs().Flags&net.FlagUp == 0 {
		if err := netlink.LinkSetUp(lo); err != nil {
			return undo, fmt.Errorf("setting lo up: %w", err)
		}
		undo = func() error { return takeDown(lo) }
	}
	if !ipv6 || ipv6Disabled() {
		return undo, nil
	}
	source := address(capture.ProxySourceIPv6.String())
	source.Flags = unix.IFA_F_NODAD // else the kernel refuses to bind to it until a worker has run
	switch err := netlink.AddrAdd(lo, source); {
	case errors.Is(err, unix.EEXIST):
	case err != nil:
		return undo, fmt.Errorf("adding %s to lo: %w", capture.ProxySourceIPv6, err)
	default:
		undoUp := undo
		undo = func() error { return errors.Join(removeAddress(lo, capture.ProxySourceIPv6.String()), undoUp()) }
	}
	return undo, nil
}

const (
	loopbackIndex = 1 // in each namespace, whatever its name (LOOPBACK_IFINDEX)
	loopbackName  = "lo"
)

func loopback() (netlink.Link, error) {
	lo, err := netlink.LinkByIndex(loopbackIndex)
	if err != nil {
		return nil, fmt.Errorf("finding the loopback interface: %w", err)
	}
	return lo, nil
}

// takeDown also removes the address that the kernel adds when lo is set up, and
// leaves when lo is set down.
func takeDown(lo netlink.Link) error {
	if err := netlink.LinkSetDown(lo); err != nil {
		return fmt.Errorf("setting lo down: %w", err)
	}
	return removeAddress(lo, "127.0.0.1/8")
}

// ipv6Disabled reports whether lo has no IPv6, by the kernel's command line or by
// sysctl: then there is no IPv6 traffic to capture.
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

// removeAddress removes an address from lo. It succeeds if lo does not have it.
func removeAddress(lo netlink.Link, prefix string) error {
	if err := netlink.AddrDel(lo, address(prefix)); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
		return fmt.Errorf("removing %s from lo: %w", prefix, err)
	}
	return nil
}

// removeProxySource undoes the address of prepareLoopback in a later process.
func removeProxySource() error {
	lo, err := loopback()
	if err != nil {
		return err
	}
	return removeAddress(lo, capture.ProxySourceIPv6.String())
}

// checkLoopback returns what is missing of prepareLoopback's work.
func checkLoopback(ipv6 bool) ([]string, error) {
	lo, err := loopback()
	if err != nil {
		return nil, err
	}
	var missing []string
	if name := lo.Attrs().Name; name != loopbackName { // iptables matches the name
		missing = append(missing, fmt.Sprintf("unexpected: the loopback interface is named %q", name))
	}
	if lo.Attrs().Flags&net.FlagUp == 0 {
		missing = append(missing, "down: interface lo")
	}
	if !ipv6 || ipv6Disabled() {
		return missing, nil
	}
	addresses, err := netlinksafe.AddrList(lo, unix.AF_INET6)
	if err != nil {
		return nil, fmt.Errorf("reading lo's addresses: %w", err)
	}
	want := address(capture.ProxySourceIPv6.String())
	if !slices.ContainsFunc(addresses, func(a netlink.Addr) bool { return a.Equal(*want) }) {
		missing = append(missing, fmt.Sprintf("missing: address %s of lo", capture.ProxySourceIPv6))
	}
	return missing, nil
}
