// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// WaitForIPv6 waits until the host can receive packets at each of its IPv6 addresses. The kernel lists a
// new address at once, but adds its local route later, in a worker thread.
func (h *Host) WaitForIPv6() error {
	return h.Do(func() error {
		for deadline := time.Now().Add(Patience); ; time.Sleep(time.Millisecond) {
			missing, err := unreachable()
			switch {
			case errors.Is(err, netlink.ErrDumpInterrupted): // a worker thread changed the list meanwhile
			case err != nil:
				return fmt.Errorf("waiting for IPv6: %w", err)
			case len(missing) == 0:
				return nil
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("no local route after %s: %v", Patience, missing)
			}
		}
	})
}

// unreachable returns the IPv6 addresses without a local route, including link-local ones, from which
// the kernel sends neighbour solicitations.
func unreachable() (missing []string, err error) {
	addresses, err := netlink.AddrList(nil, netlink.FAMILY_V6)
	if err != nil {
		return nil, err
	}
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_V6, &netlink.Route{Table: unix.RT_TABLE_LOCAL}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, err
	}
	reachable := map[string]bool{}
	for _, route := range routes {
		if route.Dst != nil {
			reachable[route.Dst.IP.String()] = true
		}
	}
	for _, address := range addresses {
		if text := address.IP.String(); !reachable[text] {
			missing = append(missing, text)
		}
	}
	return missing, nil
}
