// SPDX-License-Identifier: Apache-2.0

// Package sample contains Rulesets for tests of the packages that apply, read and compare Rulesets.
package sample

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/dump"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
	"github.com/capture-cni/capture-cni/plugin/nftables"
)

// Rules returns the rules of a pod with Istio's defaults, after these changes of its Intent.
func Rules(changes ...func(*capture.Intent)) capture.Ruleset {
	intent := capture.Intent{
		Mesh: config.Istio,
		IPv6: capture.Captured, OutboundPort: 15001, InboundPort: 15006, TunnelPort: 15008, ProxyUID: 1337, ProxyGID: 1337,
		LoopbackCIDR: netip.MustParsePrefix("127.0.0.1/32"),
		InboundPorts: capture.Everything[uint16](), OutboundRanges: capture.Everything[netip.Prefix](),
	}
	for _, change := range changes {
		change(&intent)
	}
	return capture.Rules(intent)
}

// Dangling returns rules with a jump to a chain that does not exist.
func Dangling() capture.Ruleset {
	rs := Rules()
	last := &rs.Chains[len(rs.Chains)-1]
	last.Rules = append(last.Rules, capture.Rule{Do: capture.Action{Verdict: capture.Jump, Chain: "NOWHERE"}, Why: "a jump to nowhere"})
	return rs
}

// LongLists returns rules with sets of each type that have at least 10,000 elements.
func LongLists() capture.Ruleset {
	return Rules(func(in *capture.Intent) {
		for i := range 10_000 {
			in.ExcludeInboundPorts = append(in.ExcludeInboundPorts, capture.Ports(uint16(3*i))...)
			in.IncludeOutboundPorts = append(in.IncludeOutboundPorts, uint16(2*i+1))
			in.ExcludeOutboundPorts = append(in.ExcludeOutboundPorts, capture.Ports(uint16(i))...)
			in.ExcludeInterfaces = append(in.ExcludeInterfaces, fmt.Sprintf("eth%d", i))
			in.ExcludeOwnerGroups = append(in.ExcludeOwnerGroups, uint32(i))
			address := [16]byte{0x20, 1, 0xd, 0xb8, byte(i >> 8), byte(i)}
			in.ExcludeOutboundRanges = append(in.ExcludeOutboundRanges,
				netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24), netip.PrefixFrom(netip.AddrFrom16(address), 64))
		}
		in.ExcludeOutboundRanges = append(in.ExcludeOutboundRanges, netip.MustParsePrefix("255.255.255.255/32"), netip.MustParsePrefix("0.0.0.0/32"))
	})
}

// Apply applies rules in a namespace.
func Apply(t testing.TB, host *lab.Host, rs capture.Ruleset) {
	t.Helper()
	host.Within(t, func() error { return nftables.Backend{}.Apply(t.Context(), rs) })
}

// Dump reads the plugin's table in a namespace.
func Dump(t testing.TB, host *lab.Host) (table dump.Dump) {
	t.Helper()
	host.Within(t, func() (err error) {
		table, err = nftables.Backend{}.Dump(t.Context())
		return err
	})
	return table
}

// Inspect returns the state of the rules in a namespace.
func Inspect(t testing.TB, host *lab.Host) (state netfilter.State) {
	t.Helper()
	host.Within(t, func() (err error) {
		state, err = netfilter.Inspect(t.Context())
		return err
	})
	return state
}
