// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"net/netip"
	"testing"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// TestShape expects the same shape only for Rulesets that differ in the elements of
// their sets alone.
func TestShape(t *testing.T) {
	t.Parallel()
	prefixes := func(texts ...string) (parsed []netip.Prefix) {
		for _, text := range texts {
			parsed = append(parsed, netip.MustParsePrefix(text))
		}
		return parsed
	}
	base := capture.Intent{
		IPv6: capture.Captured, OutboundPort: 15001, InboundPort: 15006, LoopbackCIDR: netip.MustParsePrefix("127.0.0.1/32"),
		InboundPorts: capture.Everything[uint16](), OutboundRanges: capture.Everything[netip.Prefix](),
		ExcludeInboundPorts: []uint16{7, 8, 9}, IncludeOutboundPorts: []uint16{7, 8}, ExcludeOutboundPorts: []uint16{80, 81},
		ExcludeOutboundRanges: prefixes("10.0.0.0/8", "11.0.0.0/8", "2001:db8::/32", "2001:db9::/32"),
		ExcludeInterfaces:     []string{"eth1", "eth2"}, RerouteInterfaces: []string{"net1", "net2"}, ExcludeOwnerGroups: []uint32{5, 6},
	}
	for name, test := range map[string]struct {
		change func(*capture.Intent)
		same   bool
	}{
		"inbound ports":  {func(in *capture.Intent) { in.ExcludeInboundPorts = []uint16{1, 2} }, true},
		"outbound ports": {func(in *capture.Intent) { in.IncludeOutboundPorts = []uint16{1, 2, 3, 4} }, true},
		"ranges": {func(in *capture.Intent) {
			in.ExcludeOutboundRanges = prefixes("1.0.0.0/8", "2.0.0.0/8", "fd00::/16", "fd01::/16")
		}, true},
		"interfaces":            {func(in *capture.Intent) { in.ExcludeInterfaces = []string{"a", "b", "c"} }, true},
		"rerouted interfaces":   {func(in *capture.Intent) { in.RerouteInterfaces = []string{"a", "b", "c"} }, true},
		"groups":                {func(in *capture.Intent) { in.ExcludeOwnerGroups = []uint32{1, 2, 3} }, true},
		"a single port":         {func(in *capture.Intent) { in.IncludeOutboundPorts = []uint16{7} }, false},
		"another single port":   {func(in *capture.Intent) { in.TunnelPort = 1 }, false},
		"no ranges of a family": {func(in *capture.Intent) { in.ExcludeOutboundRanges = prefixes("10.0.0.0/8", "11.0.0.0/8") }, false},
		"the proxy's port":      {func(in *capture.Intent) { in.OutboundPort = 1 }, false},
	} {
		changed := base
		test.change(&changed)
		a, b := capture.Rules(base), capture.Rules(changed)
		if same := shapeOf(a).Stamp() == shapeOf(b).Stamp(); same != test.same {
			t.Errorf("%s: the same shape: %t", name, same)
		}
		if a.Stamp() != capture.Rules(base).Stamp() || a.Stamp() == b.Stamp() {
			t.Errorf("%s: the Ruleset itself is changed", name)
		}
	}
	single := capture.Intent{Transparent: true, LoopbackCIDR: base.LoopbackCIDR, IPv6: capture.Captured, OutboundPort: 15001, InboundPort: 15006}
	if rs := capture.Rules(single); shapeOf(rs).Stamp() != rs.Stamp() {
		t.Error("the shape of a Ruleset without sets differs from it")
	}
}
