// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
)

// Key documents one key of our entry. Keys are those of a nested object.
type Key struct {
	Name, Type, Default, Meaning string
	Keys                         []Key

	set func(value json.RawMessage) error
}

// Accepts reports whether a value has the key's documented form.
func (k Key) Accepts(value json.RawMessage) bool {
	return k.set != nil && k.set(value) == nil
}

// Keys returns the keys of our entry in a conflist, in the order of the reference's table.
// They set the fields of c.
func Keys(c *NetConf) []Key {
	return []Key{
		{
			Name: "kubeconfig", Type: "absolute path", Default: "/var/lib/capture-cni/kubeconfig",
			set: into(&c.Kubeconfig, fileNamed(KubeconfigName)),
			Meaning: "file with the API server's address and credentials, for capture-cni-lookup: `kubeconfig` in an allowed directory. " +
				"It may be missing while the agent answers",
		},
		{
			Name: "lookupTimeout", Type: "duration", Default: "30s", set: into(&c.LookupTimeout, lookupTimeout),
			Meaning: "time limit of a pod lookup including retries, from 1s to 2m. CHECK makes one attempt",
		},
		{
			Name: "backend", Type: "`nftables`, `iptables`, `iptables-nft`, `iptables-legacy`", Default: "nftables",
			set:     into(&c.Backend, oneOf(NFTables, IPTables, IPTablesNFT, IPTablesLegacy)),
			Meaning: "backend that writes the rules to the kernel; `iptables`: the variant that the node's `iptables` command is",
		},
		{
			Name: "excludeNamespaces", Type: "list of namespaces", Default: "[]", set: into(&c.ExcludeNamespaces, each(namespaceOrPrefix)),
			Meaning: "namespaces whose pods are never captured; a trailing `*` makes a name a prefix. " +
				"The agent's default in mode `multus-chain` is `openshift-*` and `kube-*`",
		},
		{
			Name: "meshes", Type: "list of meshes", Default: `["istio", "capture-cni"]`, set: into(&c.Capture.Meshes, meshNames),
			Meaning: "whose pods are captured: `istio`, `linkerd`, and `capture-cni` for pods with [keys of our own](sidecars.md)",
		},
		{
			Name: "ipv6", Type: "`mesh`, `always`, `never`", Default: "mesh", set: into(&c.Capture.IPv6, oneOf(IPv6Mesh, IPv6Always, IPv6Never)),
			Meaning: "whether IPv6 is captured. " +
				"`mesh`: in IPv6-only pods, and in pods with ISTIO_DUAL_STACK=true even if they have no IPv6 address at ADD; " +
				"other meshes: [sidecars](sidecars.md). " +
				"Without that, IPv6 connections of a pod without an IPv6 address are refused",
		},
		{
			Name: "sharedProxyUID", Type: "`warn`, `refuse`", Default: "warn",
			set: into(&c.Capture.SharedProxyUID, oneOf(SharedUIDWarn, SharedUIDRefuse)),
			Meaning: "whether to warn about or refuse a pod in which another container's security context sets the proxy's uid or gid, " +
				"or sets no uid while the proxy's is not the mesh's, or can take the gid from the pod's groups",
		},
		{
			Name: "sandboxedRuntimeClasses", Type: "list of names", Default: "[]", set: into(&c.Capture.SandboxedRuntimeClasses, each(className)),
			Meaning: "runtime classes with their own network stack, in addition to kata*, gvisor*, firecracker* and similar ones. " +
				"Meshed pods of these classes are refused. A name may end with `*`",
		},
		{
			Name: "sharedKernelRuntimeClasses", Type: "list of names", Default: "[]",
			set: into(&c.Capture.SharedKernelRuntimeClasses, each(className)),
			Meaning: "runtime classes that share the node's kernel, in addition to runc, crun, youki, nvidia* and performance-*. " +
				"Takes precedence over the built-in classes with their own network stack. " +
				"Pods of unknown classes are captured with a warning. A name may end with `*`",
		},
		{
			Name: "status", Type: "`lenient`, `strict`", Default: "lenient", set: into(&c.Status, oneOf(StatusLenient, StatusStrict)),
			Meaning: "`strict`: CNI STATUS fails while meshed pods could not start",
		},
		{
			Name: "agentSocket", Type: "absolute path, or empty", Default: "/run/capture-cni/agent.sock", set: into(&c.AgentSocket, agentSocket),
			Meaning: "agent socket that receives ADD results: `agent.sock` in an allowed directory. " +
				"Best effort: the plugin never blocks on it. " +
				"The agent answers requests of pods at `sockets/pods.sock` in the same directory. " +
				"Empty: no agent; pods are read from the API server",
		},
		{
			Name: "logLevel", Type: "`debug`, `info`, `warn`, `error`", Default: "info", set: into(&c.LogLevel, logLevel),
			Meaning: "lowest level that is logged to stderr, which the runtime stores",
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
			Meaning: "the proxy's port for outbound traffic",
		},
		{
			Name: "inboundPort", Type: "port", Default: "15006", set: into(&m.InboundPort, port),
			Meaning: "the proxy's port for inbound traffic",
		},
		{
			Name: "tunnelPort", Type: "port", Default: "15008", set: into(&m.TunnelPort, port),
			Meaning: "the proxy's port for HBONE tunnels, never captured",
		},
		{
			Name: "dnsPort", Type: "port", Default: "15053", set: into(&m.DNSPort, port),
			Meaning: "the proxy's port for DNS queries, for pods with DNS capture",
		},
		{
			Name: "proxyUID", Type: "id", Default: "1337", set: into(&m.ProxyUID, id),
			Meaning: "the proxy's uid if the pod sets none",
		},
		{
			Name: "proxyGID", Type: "id", Default: "1337", set: into(&m.ProxyGID, id),
			Meaning: "the proxy's gid if the pod sets none",
		},
		{
			Name: "excludeOutboundIPRanges", Type: "list of CIDRs", Default: "[]", set: into(&m.ExcludeOutboundIPRanges, each(cidr)),
			Meaning: "destination ranges that are excluded from outbound capture",
		},
		{
			Name: "excludeOutboundPorts", Type: "list of ports", Default: "[]", set: into(&m.ExcludeOutboundPorts, each(port)),
			Meaning: "destination ports that are excluded from outbound capture",
		},
		{
			Name: "excludeInboundPorts", Type: "list of ports", Default: "[]", set: into(&m.ExcludeInboundPorts, each(port)),
			Meaning: "ports that are excluded from inbound capture in pods that capture `*`",
		},
		{
			Name: "outboundOwnerGroups", Type: "list of ids", Default: "[]", set: into(&m.OutboundOwnerGroups, each(groupID)),
			Meaning: "if not empty: the only groups whose outbound traffic is captured",
		},
		{
			Name: "outboundOwnerGroupsExclude", Type: "list of ids", Default: "[]", set: into(&m.OutboundOwnerGroupsExclude, each(groupID)),
			Meaning: "groups whose outbound traffic is not captured; ignored if outboundOwnerGroups is set",
		},
		{
			Name: "loopbackCIDR", Type: "CIDR", Default: "127.0.0.1/32", set: into(&m.LoopbackCIDR, loopback),
			Meaning: "the IPv4 loopback range that is never captured",
		},
	}
}
