// SPDX-License-Identifier: Apache-2.0

package config

import "net/netip"

// IPv6Policy says whether a pod's IPv6 traffic is captured.
type IPv6Policy string

const (
	// IPv6Mesh captures it for an IPv6-only pod, and whenever ISTIO_DUAL_STACK is true.
	IPv6Mesh   IPv6Policy = "mesh"
	IPv6Always IPv6Policy = "always"
	IPv6Never  IPv6Policy = "never"
)

// SharedUIDPolicy says what becomes of a pod in which something besides the
// proxy runs with the proxy's uid or gid, and so escapes capture.
type SharedUIDPolicy string

const (
	// SharedUIDWarn refuses only where the pod's own security context makes
	// them equal, and warns where two containers each chose it.
	SharedUIDWarn   SharedUIDPolicy = "warn"
	SharedUIDRefuse SharedUIDPolicy = "refuse"
)

// Settings are the node operator's part in a decision.
type Settings struct {
	Mesh           Mesh
	IPv6           IPv6Policy
	SharedProxyUID SharedUIDPolicy
	// The operator's names of runtime classes, before the built-in ones.
	SandboxedRuntimeClasses, SharedKernelRuntimeClasses []string
}

// Mesh is what holds for every pod of the mesh.
type Mesh struct {
	OutboundPort, InboundPort, TunnelPort, DNSPort uint16
	ProxyUID, ProxyGID                             uint32

	// The excludes are united with each pod's own.
	ExcludeOutboundIPRanges []netip.Prefix
	ExcludeOutboundPorts    []uint16
	ExcludeInboundPorts     []uint16

	OutboundOwnerGroups        []uint32 // empty: every group
	OutboundOwnerGroupsExclude []uint32
	LoopbackCIDR               netip.Prefix
}

// DefaultSettings are Istio's own defaults.
func DefaultSettings() Settings {
	return Settings{
		IPv6:           IPv6Mesh,
		SharedProxyUID: SharedUIDWarn,
		Mesh: Mesh{
			OutboundPort: 15001,
			InboundPort:  15006,
			TunnelPort:   15008,
			DNSPort:      15053,
			ProxyUID:     1337,
			ProxyGID:     1337,
			LoopbackCIDR: netip.MustParsePrefix("127.0.0.1/32"),
		},
	}
}
