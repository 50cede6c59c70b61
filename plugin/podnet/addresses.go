// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// Addresses returns all addresses of the namespace's interfaces.
func (n *Namespace) Addresses() ([]netip.Addr, error) {
	list, err := Read(n, func() ([]netlink.Addr, error) {
		return ListWhole(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	})
	if err != nil {
		return nil, fmt.Errorf("reading the pod's addresses: %w", err)
	}
	var addresses []netip.Addr
	for _, a := range list {
		if address, ok := netip.AddrFromSlice(a.IP); ok {
			addresses = append(addresses, address.Unmap())
		}
	}
	return addresses, nil
}

const listAttempts = 5

// ListWhole reads a list again while the kernel reports that it changed meanwhile: an
// address could be missing in it, and its family would stay uncaptured.
func ListWhole[T any](list func() ([]T, error)) (found []T, err error) {
	for range listAttempts {
		if found, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return found, err
		}
	}
	return nil, err
}
