// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"net/netip"

	"github.com/capture-cni/capture-cni/config"
)

// Intent holds the validated settings of one pod. It is the only input of Rules.
type Intent struct {
	// Mesh decides which fields have an effect, and the order of the rules.
	Mesh config.MeshName

	// IPv6 says whether IPv6 is captured, ignored or refused. IPv4 is always captured.
	IPv6 Treatment

	// Transparent captures inbound connections by TPROXY. The proxy then sees their original addresses
	// and, with the proxy's help, so does the application.
	Transparent bool

	// CaptureDNS redirects DNS queries for any resolver to DNSPort, in Kuma's mesh only those over UDP.
	CaptureDNS bool

	OutboundPort uint16 // the proxy's port for outbound connections; 0 if it has none
	InboundPort  uint16 // the proxy's port for inbound connections; 0 if it has none
	TunnelPort   uint16 // the proxy's own mTLS tunnel, never captured inbound; 0 if it has none
	DNSPort      uint16

	ProxyUID, ProxyGID uint32 // a gid of 0 means none

	// LoopbackCIDR is an IPv4 range on loopback that is not captured, except for DNS queries, even if
	// CaptureLoopback is set.
	LoopbackCIDR netip.Prefix

	InboundPorts         Selection[uint16]
	ExcludeInboundPorts  []PortRange
	ExcludeInboundRanges []netip.Prefix // ranges of clients

	IncludeOutboundPorts  []uint16
	ExcludeOutboundPorts  []PortRange
	OutboundRanges        Selection[netip.Prefix]
	ExcludeOutboundRanges []netip.Prefix

	// CaptureLoopback is set if OutboundRanges lists a loopback range of either family. In that case,
	// no rule exempts all traffic on lo, so that the ranges decide about it.
	CaptureLoopback bool

	ExcludeInterfaces []string
	RerouteInterfaces []string

	// If OwnerGroups is not empty, only these groups' outbound traffic is captured, and
	// ExcludeOwnerGroups has no effect.
	OwnerGroups        []uint32
	ExcludeOwnerGroups []uint32

	// Exempt describes traffic that is not captured even if other fields capture it. It does not apply
	// to queries that Translations send to another server.
	Exempt []Exempt `json:",omitzero"`

	// Translations send DNS queries to servers other than the proxy at DNSPort.
	Translations []Translation `json:",omitzero"`

	DropInvalid bool

	Fence *Fence `json:",omitzero"` // nil for a pod without a fence
}

// Exempt describes packets that the pod's processes send. A packet is exempt if it matches every field
// that is set. At least one field is set.
type Exempt struct {
	Protocol Protocol // needed for Ports
	Ports    []PortRange
	UIDs     *IDRange
	Ranges   []netip.Prefix // of destinations
}

// Translation sends DNS queries over UDP and TCP to the server To. If the port of To is 0, the query's
// port stays.
type Translation struct {
	From netip.Prefix // the servers that the queries are for; the zero value is any of To's family
	To   netip.AddrPort
}

// Selection is a wildcard or a list. "*" selects everything, and an empty list nothing.
type Selection[T any] struct {
	All  bool
	Only []T
}
