// SPDX-License-Identifier: Apache-2.0

package config

import "net/netip"

// Backend names the way to write a Ruleset to the kernel. All backends write the same rules.
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

// SharedUIDPolicy decides whether ADD refuses a pod if a container other than the proxy runs with
// the proxy's uid or gid, or can take it. The traffic of such a container escapes capture.
type SharedUIDPolicy string

const (
	// SharedUIDWarn refuses the pod if its pod-level security context sets the
	// shared id, and warns if the containers' own security contexts do.
	SharedUIDWarn   SharedUIDPolicy = "warn"
	SharedUIDRefuse SharedUIDPolicy = "refuse"
)

// MeshName names the mesh whose annotations a pod has, and so decides how to read them.
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
	// Names of runtime classes, which take precedence over the built-in names.
	SandboxedRuntimeClasses, SharedKernelRuntimeClasses []string

	// FenceLimit holds the widest exceptions that a pod's fence may have. If it is nil, a fence
	// may have any exception.
	FenceLimit []Opening
}

// Mesh holds the settings of Istio's mesh, and some that apply to every mesh.
type Mesh struct {
	OutboundPort, InboundPort, TunnelPort, DNSPort uint16
	ProxyUID, ProxyGID                             uint32

	// These two apply to every mesh, and are merged with the exclusions in each pod's
	// annotations.
	ExcludeOutboundIPRanges []netip.Prefix
	ExcludeOutboundPorts    []uint16
	ExcludeInboundPorts     []uint16

	OutboundOwnerGroups        []uint32 // if empty, all groups are captured
	OutboundOwnerGroupsExclude []uint32
	LoopbackCIDR               netip.Prefix
}

// DefaultSettings returns Istio's defaults.
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
