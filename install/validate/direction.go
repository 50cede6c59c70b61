// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"fmt"
	"net/netip"
	"slices"
)

// Direction is what one run proves. It can't be both: whose traffic it is
// decides, and a process without capabilities has one uid.
type Direction string

const (
	// Outbound connects to somewhere else, with any uid and gid but the proxy's.
	Outbound Direction = "outbound"

	// Inbound connects to the pod's own address, with the proxy's uid. To the
	// rules that is the pod calling itself through a service, which is inbound.
	Inbound Direction = "inbound"
)

func (d Direction) code() int {
	if d == Inbound {
		return CodeInbound
	}
	return CodeOutbound
}

// DefaultDestinations are reserved for documentation: nobody has them.
var DefaultDestinations = []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}

// destination is where to connect to in one family.
func (s Settings) destination(pod surroundings, f Family) (netip.Addr, error) {
	candidates, what := s.Destinations, "destination"
	if s.Direction == Inbound {
		candidates, what = pod.addresses, "address of the pod's own"
	}
	if i := slices.IndexFunc(candidates, f.has); i >= 0 {
		return candidates[i], nil
	}
	return netip.Addr{}, &Failure{CodeNotTried, fmt.Errorf("there is no %s of %s", what, f)}
}
