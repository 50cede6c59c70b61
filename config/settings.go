// SPDX-License-Identifier: Apache-2.0

package config

import "net/netip"

// Backend names the way in which the plugin writes a pod's rules to the kernel. The rules of all
// backends make the same decisions, unless a process renames lo, which only iptables recognizes by name.
type Backend string

const (
	NFTables       Backend = "nftables"        // nf_tables over netlink; executes no program
	IPTables       Backend = "iptables"        // the variant of the node's command iptables
	IPTablesNFT    Backend = "iptables-nft"    // iptables on nf_tables
	IPTablesLegacy Backend = "iptables-legacy" // iptables on x_tables
)

// IPv6Policy decides whether a pod's IPv6 traffic is captured.
type IPv6Policy string

const (
	// IPv6Mesh captures IPv6 of IPv6-only pods, and of pods for which the mesh requests it, such as
	// with Istio's variable ISTIO_DUAL_STACK=true.
	IPv6Mesh   IPv6Policy = "mesh"
	IPv6Always IPv6Policy = "always"
	IPv6Never  IPv6Policy = "never"
)

// SharedUIDPolicy decides what ADD does with a pod in which another container has the proxy's uid or
// gid, or can get it. Traffic with that id escapes capture.
type SharedUIDPolicy string

const (
	// SharedUIDWarn warns about such a container. ADD still refuses the pod if the pod's own security
	// context sets the shared id, or if the pod has a fence or belongs to the mesh capture-cni.
	SharedUIDWarn   SharedUIDPolicy = "warn"
	SharedUIDRefuse SharedUIDPolicy = "refuse"
)

// MeshName names a mesh. The mesh to which a pod belongs decides which of the pod's annotations the
// plugin reads, and how.
type MeshName string

const (
	Istio   MeshName = "istio"
	Linkerd MeshName = "linkerd"
	Consul  MeshName = "consul"
	Kuma    MeshName = "kuma"        // from version 3
	OwnKeys MeshName = "capture-cni" // the plugin's own annotations, for any sidecar
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

	// These three settings apply to every mesh. The plugin adds them to the exclusions in a pod's
	// annotations, except that Linkerd's annotation skip-outbound-ports replaces ExcludeOutboundPorts.
	ExcludeOutboundIPRanges []netip.Prefix
	ExcludeOutboundPorts    []uint16
	ExcludeInboundPorts     []uint16

	OutboundOwnerGroups        []uint32 // if empty, all groups except OutboundOwnerGroupsExclude are captured
	OutboundOwnerGroupsExclude []uint32
	LoopbackCIDR               netip.Prefix
}

// DefaultSettings returns the default settings. The ports, ids and LoopbackCIDR are Istio's defaults.
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
