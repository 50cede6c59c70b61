// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
)

// Key documents one key of the plugin's entry in a conflist. If the key's value is an object, the field
// Keys lists the object's keys.
type Key struct {
	Name, Type, Default, Meaning string
	Keys                         []Key

	set func(value json.RawMessage) error
}

// Accepts reports whether a value has the key's documented form. For a key with Keys, it returns false.
func (k Key) Accepts(value json.RawMessage) bool {
	return k.set != nil && k.set(value) == nil
}

// Keys returns the keys of the plugin's entry in a conflist, in the order of the reference's table. A
// Key that parses a valid value stores it in the corresponding field of c.
func Keys(c *NetConf) []Key {
	return []Key{
		{
			Name: "kubeconfig", Type: "absolute path", Default: "/var/lib/capture-cni/kubeconfig",
			set:     into(&c.Kubeconfig, fileNamed(KubeconfigName, "")),
			Meaning: "credentials for the API server, if the agent can't return a pod",
		},
		{
			Name: "lookupTimeout", Type: "duration", Default: "30s", set: into(&c.LookupTimeout, lookupTimeout),
			Meaning: "limit for reading a pod, 1s to 2m; CHECK never retries",
		},
		{
			Name: "backend", Type: "`nftables`, `iptables`, `iptables-nft`, `iptables-legacy`", Default: "nftables",
			set:     into(&c.Backend, oneOf(NFTables, IPTables, IPTablesNFT, IPTablesLegacy)),
			Meaning: "[backend](#backends) that writes the rules",
		},
		{
			Name: "excludeNamespaces", Type: "list of namespaces", Default: "[]", set: into(&c.ExcludeNamespaces, each(namespaceOrPrefix)),
			Meaning: "namespaces, or prefixes such as `kube-*`, whose pods are never captured",
		},
		{
			Name: "meshes", Type: "list of meshes", Default: `["istio", "capture-cni"]`, set: into(&c.Capture.Meshes, meshNames),
			Meaning: "[meshes](sidecars.md) whose pods are captured",
		},
		{
			Name: "ipv6", Type: "`mesh`, `always`, `never`", Default: "mesh", set: into(&c.Capture.IPv6, oneOf(IPv6Mesh, IPv6Always, IPv6Never)),
			Meaning: "whether [IPv6](limits.md) is captured; `mesh`: as the pod's mesh decides",
		},
		{
			Name: "sharedProxyUID", Type: "`warn`, `refuse`", Default: "warn",
			set:     into(&c.Capture.SharedProxyUID, oneOf(SharedUIDWarn, SharedUIDRefuse)),
			Meaning: "treatment of pods in which another container may have the proxy's IDs",
		},
		{
			Name: "sandboxedRuntimeClasses", Type: "list of names", Default: "[]", set: into(&c.Capture.SandboxedRuntimeClasses, each(className)),
			Meaning: "further sandboxed runtime classes, whose meshed pods are refused",
		},
		{
			Name: "sharedKernelRuntimeClasses", Type: "list of names", Default: "[]",
			set:     into(&c.Capture.SharedKernelRuntimeClasses, each(className)),
			Meaning: "further runtime classes that are not sandboxed",
		},
		{
			Name: "fenceLimit", Type: "list of exceptions", Default: `["*"]`, set: into(&c.Capture.FenceLimit, openings),
			Meaning: "widest permitted exceptions of a pod's [fence](fence.md); `*`: any",
		},
		{
			Name: "status", Type: "`lenient`, `strict`", Default: "lenient", set: into(&c.Status, oneOf(StatusLenient, StatusStrict)),
			Meaning: "`strict`: CNI STATUS fails while meshed pods could not start",
		},
		{
			Name: "agentSocket", Type: "absolute path, or empty", Default: "/run/capture-cni/agent.sock", set: into(&c.AgentSocket, agentSocket),
			Meaning: "the agent's socket; empty: the plugin asks only the API server, without reporting results",
		},
		{
			Name: "logLevel", Type: "`debug`, `info`, `warn`, `error`", Default: "info", set: into(&c.LogLevel, logLevel),
			Meaning: "lowest level logged to stderr",
		},
		{
			Name: "mesh", Type: "object", Default: "{}", Keys: meshKeys(&c.Capture.Mesh),
			Meaning: "settings for every pod of Istio's mesh, and exclusions for every mesh",
		},
	}
}

func meshKeys(m *Mesh) []Key {
	return []Key{
		{
			Name: "outboundPort", Type: "port", Default: "15001", set: into(&m.OutboundPort, port),
			Meaning: "the proxy's outbound port",
		},
		{
			Name: "inboundPort", Type: "port", Default: "15006", set: into(&m.InboundPort, port),
			Meaning: "the proxy's inbound port",
		},
		{
			Name: "tunnelPort", Type: "port", Default: "15008", set: into(&m.TunnelPort, port),
			Meaning: "the proxy's HBONE port, never captured inbound",
		},
		{
			Name: "dnsPort", Type: "port", Default: "15053", set: into(&m.DNSPort, port),
			Meaning: "the proxy's DNS port",
		},
		{
			Name: "proxyUID", Type: "id", Default: "1337", set: into(&m.ProxyUID, id),
			Meaning: "the proxy's uid if the pod sets none or 0",
		},
		{
			Name: "proxyGID", Type: "id", Default: "1337", set: into(&m.ProxyGID, id),
			Meaning: "the proxy's gid if the pod sets none or 0",
		},
		{
			Name: "excludeOutboundIPRanges", Type: "list of CIDRs", Default: "[]", set: into(&m.ExcludeOutboundIPRanges, each(cidr)),
			Meaning: "uncaptured destination ranges, except for DNS",
		},
		{
			Name: "excludeOutboundPorts", Type: "list of ports", Default: "[]", set: into(&m.ExcludeOutboundPorts, each(port)),
			Meaning: "uncaptured destination ports",
		},
		{
			Name: "excludeInboundPorts", Type: "list of ports", Default: "[]", set: into(&m.ExcludeInboundPorts, each(port)),
			Meaning: "uncaptured inbound ports, in pods that capture `*`",
		},
		{
			Name: "outboundOwnerGroups", Type: "list of ids", Default: "[]", set: into(&m.OutboundOwnerGroups, each(groupID)),
			Meaning: "the only groups whose outbound traffic is captured; empty: all except excluded",
		},
		{
			Name: "outboundOwnerGroupsExclude", Type: "list of ids", Default: "[]", set: into(&m.OutboundOwnerGroupsExclude, each(groupID)),
			Meaning: "groups with uncaptured outbound traffic; ignored with `outboundOwnerGroups`",
		},
		{
			Name: "loopbackCIDR", Type: "CIDR", Default: "127.0.0.1/32", set: into(&m.LoopbackCIDR, loopback),
			Meaning: "IPv4 loopback range, never captured except for DNS",
		},
	}
}
