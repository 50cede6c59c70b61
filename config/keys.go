// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"log/slog"
	"net/netip"
	"time"
)

// Key documents one key of our entry. An object has Keys instead of a type.
type Key struct {
	Name, Type, Default, Meaning string
	Keys                         []Key

	set func(conf *NetConf, value json.RawMessage) error
}

// Accepts reports whether a value has the key's documented form.
func (k Key) Accepts(value json.RawMessage) bool {
	return k.set != nil && k.set(new(NetConf), value) == nil
}

// Keys are the keys of our entry in a conflist, in the order of the README's table.
func Keys() []Key {
	return []Key{
		{
			Name: "kubeconfig", Type: "absolute path", Default: "/var/lib/capture-cni/kubeconfig",
			Meaning: "how to reach the API server: `kubeconfig` in an allowed directory",
			set:     setter(func(c *NetConf) *string { return &c.Kubeconfig }, fileNamed(KubeconfigName)),
		},
		{
			Name: "lookupTimeout", Type: "duration", Default: "30s",
			Meaning: "budget of a pod lookup, all attempts together; at most 2m. CHECK tries once",
			set:     setter(func(c *NetConf) *time.Duration { return &c.LookupTimeout }, lookupTimeout),
		},
		{
			Name: "backend", Type: "`nftables`, `iptables`, `iptables-nft`, `iptables-legacy`", Default: "nftables",
			Meaning: "what puts the rules in place; `iptables` is whichever variant the host calls by this name",
			set: setter(func(c *NetConf) *Backend { return &c.Backend },
				oneOf(NFTables, IPTables, IPTablesNFT, IPTablesLegacy)),
		},
		{
			Name: "excludeNamespaces", Type: "list of names", Default: "[]",
			Meaning: "namespaces whose pods are left alone, whatever they ask for",
			set:     setter(func(c *NetConf) *[]string { return &c.ExcludeNamespaces }, each(name)),
		},
		{
			Name: "ipv6", Type: "`mesh`, `always`, `never`", Default: "mesh",
			Meaning: "`mesh` captures IPv6 of IPv6-only pods, and of each pod with ISTIO_DUAL_STACK, whatever addresses it starts with",
			set: setter(func(c *NetConf) *IPv6Policy { return &c.Capture.IPv6 },
				oneOf(IPv6Mesh, IPv6Always, IPv6Never)),
		},
		{
			Name: "sharedProxyUID", Type: "`warn`, `refuse`", Default: "warn",
			Meaning: "what becomes of a pod in which another container chose the proxy's uid or gid",
			set: setter(func(c *NetConf) *SharedUIDPolicy { return &c.Capture.SharedProxyUID },
				oneOf(SharedUIDWarn, SharedUIDRefuse)),
		},
		{
			Name: "sandboxedRuntimeClasses", Type: "list of names", Default: "[]",
			Meaning: "more runtime classes with a network stack of their own: meshed pods are refused, as with kata*, gvisor*, firecracker* and their like; `*` may end a name",
			set:     setter(func(c *NetConf) *[]string { return &c.Capture.SandboxedRuntimeClasses }, each(className)),
		},
		{
			Name: "sharedKernelRuntimeClasses", Type: "list of names", Default: "[]",
			Meaning: "more runtime classes that share the node's kernel, as runc, crun, youki, nvidia* and performance-* do; `*` may end a name; wins over the built-in names of sandboxes. Any other class is captured with a warning",
			set:     setter(func(c *NetConf) *[]string { return &c.Capture.SharedKernelRuntimeClasses }, each(className)),
		},
		{
			Name: "status", Type: "`lenient`, `strict`", Default: "lenient",
			Meaning: "`strict` lets CNI STATUS fail while meshed pods could not start",
			set:     setter(func(c *NetConf) *StatusMode { return &c.Status }, oneOf(StatusLenient, StatusStrict)),
		},
		{
			Name: "agentSocket", Type: "absolute path, or empty", Default: "/run/capture-cni/agent.sock",
			Meaning: "agent socket that receives ADD results: `agent.sock` in an allowed directory. Best effort: the plugin never blocks on it. Empty: disabled",
			set:     setter(func(c *NetConf) *string { return &c.AgentSocket }, agentSocket),
		},
		{
			Name: "logLevel", Type: "`debug`, `info`, `warn`, `error`", Default: "info",
			Meaning: "what goes to stderr, which the runtime keeps",
			set:     setter(func(c *NetConf) *slog.Level { return &c.LogLevel }, logLevel),
		},
		{
			Name: "mesh", Type: "object", Default: "{}",
			Meaning: "what holds for every pod of the mesh", Keys: meshKeys(),
		},
	}
}

func meshKeys() []Key {
	mesh := func(c *NetConf) *Mesh { return &c.Capture.Mesh }
	return []Key{
		{
			Name: "outboundPort", Type: "port", Default: "15001", Meaning: "where the proxy takes outbound traffic",
			set: setter(func(c *NetConf) *uint16 { return &mesh(c).OutboundPort }, port),
		},
		{
			Name: "inboundPort", Type: "port", Default: "15006", Meaning: "where the proxy takes inbound traffic",
			set: setter(func(c *NetConf) *uint16 { return &mesh(c).InboundPort }, port),
		},
		{
			Name: "tunnelPort", Type: "port", Default: "15008", Meaning: "the proxy's own tunnel, never captured",
			set: setter(func(c *NetConf) *uint16 { return &mesh(c).TunnelPort }, port),
		},
		{
			Name: "dnsPort", Type: "port", Default: "15053", Meaning: "where the proxy takes DNS queries, under DNS capture",
			set: setter(func(c *NetConf) *uint16 { return &mesh(c).DNSPort }, port),
		},
		{
			Name: "proxyUID", Type: "id", Default: "1337", Meaning: "the proxy's uid where the pod names none",
			set: setter(func(c *NetConf) *uint32 { return &mesh(c).ProxyUID }, id),
		},
		{
			Name: "proxyGID", Type: "id", Default: "1337", Meaning: "the proxy's gid where the pod names none",
			set: setter(func(c *NetConf) *uint32 { return &mesh(c).ProxyGID }, id),
		},
		{
			Name: "excludeOutboundIPRanges", Type: "list of CIDRs", Default: "[]", Meaning: "destinations that no pod's traffic is captured to",
			set: setter(func(c *NetConf) *[]netip.Prefix { return &mesh(c).ExcludeOutboundIPRanges }, each(cidr)),
		},
		{
			Name: "excludeOutboundPorts", Type: "list of ports", Default: "[]", Meaning: "outbound ports that no pod's traffic is captured to",
			set: setter(func(c *NetConf) *[]uint16 { return &mesh(c).ExcludeOutboundPorts }, each(port)),
		},
		{
			Name: "excludeInboundPorts", Type: "list of ports", Default: "[]", Meaning: "inbound ports left alone in every pod that captures `*`",
			set: setter(func(c *NetConf) *[]uint16 { return &mesh(c).ExcludeInboundPorts }, each(port)),
		},
		{
			Name: "outboundOwnerGroups", Type: "list of ids", Default: "[]", Meaning: "if not empty, the only groups whose outbound traffic is captured",
			set: setter(func(c *NetConf) *[]uint32 { return &mesh(c).OutboundOwnerGroups }, each(groupID)),
		},
		{
			Name: "outboundOwnerGroupsExclude", Type: "list of ids", Default: "[]", Meaning: "groups whose outbound traffic is left alone; read where outboundOwnerGroups is empty",
			set: setter(func(c *NetConf) *[]uint32 { return &mesh(c).OutboundOwnerGroupsExclude }, each(groupID)),
		},
		{
			Name: "loopbackCIDR", Type: "CIDR", Default: "127.0.0.1/32", Meaning: "the IPv4 loopback that is never captured",
			set: setter(func(c *NetConf) *netip.Prefix { return &mesh(c).LoopbackCIDR }, loopback),
		},
	}
}
