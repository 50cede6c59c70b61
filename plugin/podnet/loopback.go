// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// prepareLoopback brings lo up, to which redirected connections go, and gives
// it the address that the proxy connects from over IPv6. undo is never nil and
// takes back just what was done.
func prepareLoopback(ipv6 bool) (undo func() error, err error) {
	undo = func() error { return nil }
	lo, err := netlinksafe.LinkByName("lo")
	if err != nil {
		return undo, fmt.Errorf("finding lo: %w", err)
	}
	if lo.Attrs().Flags&net.FlagUp == 0 {
		if err := netlink.LinkSetUp(lo); err != nil {
			return undo, fmt.Errorf("bringing lo up: %w", err)
		}
		undo = func() error { return netlink.LinkSetDown(lo) }
	}
	if !ipv6 {
		return undo, nil
	}
	switch err := netlink.AddrAdd(lo, proxySource()); {
	case errors.Is(err, unix.EEXIST):
	case withoutIPv6(err):
	case err != nil:
		return undo, fmt.Errorf("adding %s to lo: %w", capture.ProxySourceIPv6, err)
	default:
		loDown := undo
		undo = func() error { return errors.Join(removeProxySource(), loDown()) }
	}
	return undo, nil
}

// withoutIPv6 tells a kernel that runs without IPv6, where nothing is left to capture.
func withoutIPv6(err error) bool {
	return errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT)
}

func proxySource() *netlink.Addr {
	return &netlink.Addr{IPNet: &net.IPNet{
		IP:   capture.ProxySourceIPv6.Addr().AsSlice(),
		Mask: net.CIDRMask(capture.ProxySourceIPv6.Bits(), capture.ProxySourceIPv6.Addr().BitLen()),
	}}
}

// removeProxySource takes the address from lo; not being there is no error.
func removeProxySource() error {
	lo, err := netlinksafe.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("finding lo: %w", err)
	}
	if err := netlink.AddrDel(lo, proxySource()); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
		return fmt.Errorf("removing %s from lo: %w", capture.ProxySourceIPv6, err)
	}
	return nil
}

// checkLoopback says what of prepareLoopback's work is missing.
func checkLoopback(ipv6 bool) ([]string, error) {
	lo, err := netlinksafe.LinkByName("lo")
	if err != nil {
		return nil, fmt.Errorf("finding lo: %w", err)
	}
	var missing []string
	if lo.Attrs().Flags&net.FlagUp == 0 {
		missing = append(missing, "down: interface lo")
	}
	if !ipv6 {
		return missing, nil
	}
	addresses, err := netlinksafe.AddrList(lo, unix.AF_INET6)
	if err != nil {
		if withoutIPv6(err) {
			return missing, nil
		}
		return nil, fmt.Errorf("reading lo's addresses: %w", err)
	}
	if !slices.ContainsFunc(addresses, func(a netlink.Addr) bool { return a.Equal(*proxySource()) }) {
		missing = append(missing, fmt.Sprintf("missing: address %s of lo", capture.ProxySourceIPv6))
	}
	return missing, nil
}
