// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"log/slog"
	"net/netip"
	"time"
)

// Key documents one key of our entry. Keys are those of a nested object.
type Key struct {
	Name, Type, Default, Meaning string
	Keys                         []Key

	set func(conf *NetConf, value json.RawMessage) error
}

// Accepts reports whether a value has the key's documented form.
func (k Key) Accepts(value json.RawMessage) bool {
	return k.set != nil && k.set(new(NetConf), value) == nil
}

// Keys returns the keys of our entry in a conflist, in the order of the reference's table.
func Keys() []Key {
	return []Key{
		{
			Name: "kubeconfig", Type: "absolute path", Default: "/var/lib/capture-cni/kubeconfig",
			Meaning: "file with the API server's address and credentials, for capture-cni-lookup: `kubeconfig` in an allowed directory. It may be missing while the agent answers",
			set:     setter(func(c *NetConf) *string { return &c.Kubeconfig }, fileNamed(KubeconfigName)),
		},
		{
			Name: "lookupTimeout", Type: "duration", Default: "30s",
			Meaning: "time limit of a pod lookup including retries, from 1s to 2m. CHECK makes one attempt",
			set:     setter(func(c *NetConf) *time.Duration { return &c.LookupTimeout }, lookupTimeout),
		},
		{
			Name: "backend", Type: "`nftables`, `iptables`, `iptables-nft`, `iptables-legacy`", Default: "nftables",
			Meaning: "backend that writes the rules to the kernel; `iptables`: the variant that the node's `iptables` command is",
			set: setter(func(c *NetConf) *Backend { return &c.Backend },
				oneOf(NFTables, IPTables, IPTablesNFT, IPTablesLegacy)),
		},
		{
			Name: "excludeNamespaces", Type: "list of namespaces", Default: "[]",
			Meaning: "namespaces whose pods are never captured; a trailing `*` makes a name a prefix. The agent's default in mode `multus-chain` is `openshift-*` and `kube-*`",
			set:     setter(func(c *NetConf) *[]string { return &c.ExcludeNamespaces }, each(namespaceOrPrefix)),
		},
		{
			Name: "ipv6", Type: "`mesh`, `always`, `never`", Default: "mesh",
			Meaning: "whether IPv6 is captured. `mesh`: in IPv6-only pods, and in pods with ISTIO_DUAL_STACK=true even if they have no IPv6 address at ADD. Without that, IPv6 connections of a pod without an IPv6 address are refused",
			set: setter(func(c *NetConf) *IPv6Policy { return &c.Capture.IPv6 },
				oneOf(IPv6Mesh, IPv6Always, IPv6Never)),
		},
		{
			Name: "sharedProxyUID", Type: "`warn`, `refuse`", Default: "warn",
			Meaning: "whether to warn about or refuse a pod in which another container's security context sets the proxy's uid or gid, or sets no uid while the proxy's is not the mesh's",
			set: setter(func(c *NetConf) *SharedUIDPolicy { return &c.Capture.SharedProxyUID },
				oneOf(SharedUIDWarn, SharedUIDRefuse)),
		},
		{
			Name: "sandboxedRuntimeClasses", Type: "list of names", Default: "[]",
			Meaning: "runtime classes with their own network stack, in addition to kata*, gvisor*, firecracker* and similar ones. Meshed pods of these classes are refused. A name may end with `*`",
			set:     setter(func(c *NetConf) *[]string { return &c.Capture.SandboxedRuntimeClasses }, each(className)),
		},
		{
			Name: "sharedKernelRuntimeClasses", Type: "list of names", Default: "[]",
			Meaning: "runtime classes that share the node's kernel, in addition to runc, crun, youki, nvidia* and performance-*. Takes precedence over the built-in classes with their own network stack. Pods of unknown classes are captured with a warning. A name may end with `*`",
			set:     setter(func(c *NetConf) *[]string { return &c.Capture.SharedKernelRuntimeClasses }, each(className)),
		},
		{
			Name: "status", Type: "`lenient`, `strict`", Default: "lenient",
			Meaning: "`strict`: CNI STATUS fails while meshed pods could not start",
			set:     setter(func(c *NetConf) *StatusMode { return &c.Status }, oneOf(StatusLenient, StatusStrict)),
		},
		{
			Name: "agentSocket", Type: "absolute path, or empty", Default: "/run/capture-cni/agent.sock",
			Meaning: "agent socket that receives ADD results: `agent.sock` in an allowed directory. Best effort: the plugin never blocks on it. The agent answers requests of pods at `sockets/pods.sock` in the same directory. Empty: no agent; pods are read from the API server",
			set:     setter(func(c *NetConf) *string { return &c.AgentSocket }, agentSocket),
		},
		{
			Name: "logLevel", Type: "`debug`, `info`, `warn`, `error`", Default: "info",
			Meaning: "lowest level that is logged to stderr, which the runtime stores",
			set:     setter(func(c *NetConf) *slog.Level { return &c.LogLevel }, logLevel),
		},
		{
			Name: "mesh", Type: "object", Default: "{}",
			Meaning: "settings for every pod of the mesh", Keys: meshKeys(),
		},
	}
}

func meshKeys() []Key {
	mesh := func(c *NetConf) *Mesh { return &c.Capture.Mesh }
	return []Key{
		{
			Name: "outboundPort", Type: "port", Default: "15001", Meaning: "the proxy's port for outbound traffic",
			set: setter(func(c *NetConf) *uint16 { return &mesh(c).OutboundPort }, port),
		},
		{
			Name: "inboundPort", Type: "port", Default: "15006", Meaning: "the proxy's port for inbound traffic",
			set: setter(func(c *NetConf) *uint16 { return &mesh(c).InboundPort }, port),
		},
		{
			Name: "tunnelPort", Type: "port", Default: "15008", Meaning: "the proxy's port for HBONE tunnels, never captured",
			set: setter(func(c *NetConf) *uint16 { return &mesh(c).TunnelPort }, port),
		},
		{
			Name: "dnsPort", Type: "port", Default: "15053", Meaning: "the proxy's port for DNS queries, for pods with DNS capture",
			set: setter(func(c *NetConf) *uint16 { return &mesh(c).DNSPort }, port),
		},
		{
			Name: "proxyUID", Type: "id", Default: "1337", Meaning: "the proxy's uid if the pod sets none",
			set: setter(func(c *NetConf) *uint32 { return &mesh(c).ProxyUID }, id),
		},
		{
			Name: "proxyGID", Type: "id", Default: "1337", Meaning: "the proxy's gid if the pod sets none",
			set: setter(func(c *NetConf) *uint32 { return &mesh(c).ProxyGID }, id),
		},
		{
			Name: "excludeOutboundIPRanges", Type: "list of CIDRs", Default: "[]", Meaning: "destination ranges that are excluded from outbound capture",
			set: setter(func(c *NetConf) *[]netip.Prefix { return &mesh(c).ExcludeOutboundIPRanges }, each(cidr)),
		},
		{
			Name: "excludeOutboundPorts", Type: "list of ports", Default: "[]", Meaning: "destination ports that are excluded from outbound capture",
			set: setter(func(c *NetConf) *[]uint16 { return &mesh(c).ExcludeOutboundPorts }, each(port)),
		},
		{
			Name: "excludeInboundPorts", Type: "list of ports", Default: "[]", Meaning: "ports that are excluded from inbound capture in pods that capture `*`",
			set: setter(func(c *NetConf) *[]uint16 { return &mesh(c).ExcludeInboundPorts }, each(port)),
		},
		{
			Name: "outboundOwnerGroups", Type: "list of ids", Default: "[]", Meaning: "if not empty: the only groups whose outbound traffic is captured",
			set: setter(func(c *NetConf) *[]uint32 { return &mesh(c).OutboundOwnerGroups }, each(groupID)),
		},
		{
			Name: "outboundOwnerGroupsExclude", Type: "list of ids", Default: "[]", Meaning: "groups whose outbound traffic is not captured; ignored if outboundOwnerGroups is set",
			set: setter(func(c *NetConf) *[]uint32 { return &mesh(c).OutboundOwnerGroupsExclude }, each(groupID)),
		},
		{
			Name: "loopbackCIDR", Type: "CIDR", Default: "127.0.0.1/32", Meaning: "the IPv4 loopback range that is never captured",
			set: setter(func(c *NetConf) *netip.Prefix { return &mesh(c).LoopbackCIDR }, loopback),
		},
	}
}
