// SPDX-License-Identifier: Apache-2.0

package config

import "net/netip"

// Backend names a way to write a Ruleset to the kernel. All backends write rules that make the same
// decisions.
type Backend string

const (
	NFTables       Backend = "nftables"        // nf_tables over netlink; executes no program
	IPTables       Backend = "iptables"        // iptables-nft or iptables-legacy, as the node's command iptables is
	IPTablesNFT    Backend = "iptables-nft"    // iptables on nf_tables
	IPTablesLegacy Backend = "iptables-legacy" // iptables on x_tables
)

// IPv6Policy decides whether a pod's IPv6 traffic is captured.
type IPv6Policy string

const (
	// IPv6Mesh captures IPv6 of IPv6-only pods and of pods with ISTIO_DUAL_STACK=true.
	IPv6Mesh   IPv6Policy = "mesh"
	IPv6Always IPv6Policy = "always"
	IPv6Never  IPv6Policy = "never"
)

// SharedUIDPolicy decides what ADD does with a pod in which another container runs with the proxy's uid
// or gid, or can take it. The traffic of such a container escapes capture.
type SharedUIDPolicy string

const (
	// SharedUIDWarn only warns. But it refuses the pod, too, if the shared id comes from the pod's own
	// security context and not from the containers'.
	SharedUIDWarn   SharedUIDPolicy = "warn"
	SharedUIDRefuse SharedUIDPolicy = "refuse"
)

// MeshName names a mesh. The mesh to which a pod belongs decides which of its annotations are read, and
// how.
type MeshName string

const (
	Istio   MeshName = "istio"
	Linkerd MeshName = "linkerd"
	Consul  MeshName = "consul"
	Kuma    MeshName = "kuma"        // from version 3
	OwnKeys MeshName = "capture-cni" // annotations of our own, for any sidecar
)

// Meshes returns all meshes.
func Meshes() []MeshName { return []MeshName{Istio, Linkerd, Consul, Kuma, OwnKeys} }

// Settings are the operator's settings that decide which rules a pod gets.
type Settings struct {
	Meshes         []MeshName // the meshes whose pods are captured
	Mesh           Mesh
	IPv6           IPv6Policy
	SharedProxyUID SharedUIDPolicy
	// Further names of runtime classes, which take precedence over the built-in names.
	SandboxedRuntimeClasses, SharedKernelRuntimeClasses []string

	// FenceLimit contains the widest exceptions that a pod's fence may have. If it is nil, every
	// exception is permitted.
	FenceLimit []Opening
}

// Mesh contains the settings for pods of Istio. Some of them apply to every mesh.
type Mesh struct {
	OutboundPort, InboundPort, TunnelPort, DNSPort uint16
	ProxyUID, ProxyGID                             uint32

	// These two settings apply to every mesh. They are added to the exclusions in each pod's
	// annotations.
	ExcludeOutboundIPRanges []netip.Prefix
	ExcludeOutboundPorts    []uint16
	ExcludeInboundPorts     []uint16

	OutboundOwnerGroups        []uint32 // if empty, all groups are captured
	OutboundOwnerGroupsExclude []uint32
	LoopbackCIDR               netip.Prefix
}

// DefaultSettings returns the defaults, which are those of Istio.
func DefaultSettings() Settings {
	return Settings{
		Meshes:         []MeshName{Istio, OwnKeys},
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
