// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"context"
	"net/netip"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
)

// Probe checks that this host's backend and kernel support the rules: it applies
// rules with every expression to a scratch namespace.
func Probe(ctx context.Context, asked config.Backend) error {
	backend, err := netfilter.Find(ctx, asked)
	if err != nil {
		return err
	}
	_, err = netfilter.Reference(ctx, backend, capture.Rules(fullIntent()))
	return err
}

// fullIntent returns an Intent that needs every expression.
func fullIntent() capture.Intent {
	ids := []uint32{1, 2}
	ports := []uint16{1, 2}
	ranges := []netip.Prefix{
		netip.MustParsePrefix("192.0.2.0/25"), netip.MustParsePrefix("198.51.100.0/25"),
		netip.MustParsePrefix("2001:db8::/33"), netip.MustParsePrefix("2001:db9::/33"),
	}
	return capture.Intent{
		IPv6: capture.Captured, DropInvalid: true, Transparent: true, CaptureDNS: true, ProxyUID: 1, ProxyGID: 1,
		OutboundPort: 1, InboundPort: 2, TunnelPort: 3, DNSPort: 4,
		LoopbackCIDR:         netip.MustParsePrefix("127.0.0.0/8"),
		InboundPorts:         capture.Everything[uint16](),
		ExcludeInboundPorts:  ports,
		IncludeOutboundPorts: ports, ExcludeOutboundPorts: ports,
		OutboundRanges:        capture.Selection[netip.Prefix]{Only: ranges},
		ExcludeOutboundRanges: ranges,
		ExcludeInterfaces:     []string{"a", "b"}, RerouteInterfaces: []string{"c", "d"},
		ExcludeOwnerGroups: ids,
	}
}
