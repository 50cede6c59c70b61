// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"fmt"
	"net/netip"
	"slices"
)

// Direction is the traffic that one run proves. A run proves one direction: the
// rules decide by uid, and a process without capabilities can't change its uid.
type Direction string

const (
	// Outbound connects to another host, with any uid and gid but the proxy's.
	Outbound Direction = "outbound"

	// Inbound connects to the pod's own address, with the proxy's uid. The rules
	// treat such a connection as inbound: it is the pod calling its own service.
	Inbound Direction = "inbound"
)

// DefaultDestinations returns addresses that are reserved for documentation: no
// host has them.
func DefaultDestinations() []netip.Addr {
	return []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}
}

// destination returns the address to connect to.
func (s Settings) destination(pod podNetwork, f Family) (netip.Addr, error) {
	candidates, missing := s.Destinations, "no --destination is an %s address"
	if s.Direction == Inbound {
		candidates, missing = pod.addresses, "the pod has no %s address"
	}
	if i := slices.IndexFunc(candidates, f.has); i >= 0 {
		return candidates[i], nil
	}
	return netip.Addr{}, &Failure{CodeNotTried, fmt.Errorf(missing, f)}
}
