// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// Addresses returns all addresses of the namespace's interfaces.
func (n *Namespace) Addresses() ([]netip.Addr, error) {
	all, err := Read(n, ListAddresses)
	if err != nil {
		return nil, fmt.Errorf("reading the pod's addresses: %w", err)
	}
	return addressesOf(all), nil
}

// addressesOf omits the proxy's source address on lo, because no other host can reach it.
func addressesOf(all []netlink.Addr) (addresses []netip.Addr) {
	for _, a := range all {
		if address, ok := netip.AddrFromSlice(a.IP); ok && address != capture.ProxySourceIPv6.Addr() {
			addresses = append(addresses, address.Unmap())
		}
	}
	return addresses
}

// Complete completes a decision with the pod's addresses and, if the pod has a fence with exceptions,
// with the node's.
func Complete(d capture.Decision, pod []netip.Addr) (capture.Decision, error) {
	if !d.HasOpenings() {
		return d.At(pod, nil)
	}
	node, err := nodeAddresses()
	if err != nil {
		return d, err
	}
	return d.At(pod, node)
}

// nodeAddresses returns the addresses in this process's own network namespace, which is the node's. It
// omits the addresses of Services on the interfaces of kube-proxy, for IPVS, and of kube-router. It keeps
// those on NodeLocal DNSCache's interface, because the node accepts packets to all of their ports.
func nodeAddresses() ([]netip.Addr, error) {
	all, err := ListAddresses()
	if err != nil {
		return nil, fmt.Errorf("reading the node's addresses: %w", err)
	}
	for _, name := range []string{"kube-ipvs0", "kube-dummy-if"} {
		if services, err := netlink.LinkByName(name); err == nil {
			all = slices.DeleteFunc(all, func(a netlink.Addr) bool { return a.LinkIndex == services.Attrs().Index })
		}
	}
	return addressesOf(all), nil
}

// ListAddresses returns the addresses in the calling thread's namespace. It requests each family
// separately, because for such a request Linux 6.9 and newer take no lock that all namespaces share.
func ListAddresses() (found []netlink.Addr, err error) {
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		list, err := listWhole(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, family) })
		if err != nil {
			return nil, err
		}
		found = append(found, list...)
	}
	return found, nil
}

const listAttempts = 5

// listWhole requests a list up to listAttempts times, until the kernel no longer reports that the list
// changed during the answer. Without this, an address could be missing, and its family could stay
// uncaptured.
func listWhole[T any](list func() ([]T, error)) (found []T, err error) {
	for range listAttempts {
		if found, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return found, err
		}
	}
	return nil, err
}
