// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"net/netip"
)

// Intent is what one pod asks for, every value typed and checked. It is the
// only input of Rules: whatever decides packets stands here.
type Intent struct {
	// IPv6 says whether IPv6 is captured; IPv4 always is.
	IPv6 bool

	// Transparent has inbound connections keep their addresses up to the
	// proxy and, with its help, on to the application (TPROXY).
	Transparent bool

	// CaptureDNS hands queries to DNSPort, whatever resolver they are for.
	CaptureDNS bool

	OutboundPort uint16
	InboundPort  uint16
	TunnelPort   uint16 // the proxy's own mTLS tunnel, never captured
	DNSPort      uint16

	ProxyUID, ProxyGID uint32

	// LoopbackCIDR is the IPv4 loopback that is never captured.
	LoopbackCIDR netip.Prefix

	InboundPorts        Selection[uint16]
	ExcludeInboundPorts []uint16

	IncludeOutboundPorts  []uint16
	ExcludeOutboundPorts  []uint16
	OutboundRanges        Selection[netip.Prefix]
	ExcludeOutboundRanges []netip.Prefix

	// CaptureLoopback is set where a loopback range of either family is asked
	// for by itself; then loopback traffic is not exempt for either.
	CaptureLoopback bool

	ExcludeInterfaces []string
	RerouteInterfaces []string

	// OwnerGroups, where not empty, are the only groups whose outbound
	// traffic is captured; ExcludeOwnerGroups is read where it is empty.
	OwnerGroups        []uint32
	ExcludeOwnerGroups []uint32

	DropInvalid bool
}
