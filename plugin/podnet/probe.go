// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
)

// Probed says which backend works on a host, and whether it works for IPv6.
type Probed struct {
	Backend config.Backend // not an alias
	NoIPv6  error          // why pods with IPv6 can't be captured, or nil
}

// Feature is a part of the rules that not every pod needs.
type Feature string

const (
	NoFeature Feature = ""
	TProxy    Feature = "TPROXY"
	Fence     Feature = "fence"
)

// Probe tests whether the kernel and the host support a backend. For each mesh, it applies the rules of
// fullIntent to a temporary namespace. The host's programs are in the file system at root, or in this
// process's own if root is "".
func Probe(ctx context.Context, root string, asked config.Backend, meshes []config.MeshName, f Feature) (found Probed, err error) {
	backend, err := netfilter.FindBelow(ctx, root, asked)
	if err != nil {
		return found, err
	}
	found.Backend = backend.Name()
	for _, mesh := range meshes {
		intent := fullIntent(mesh, f)
		_, err = netfilter.Reference(ctx, backend, capture.Rules(intent))
		if noIPv6, ok := errors.AsType[NoIPv6](err); ok { // the ADD of a pod without IPv6 can still succeed
			found.NoIPv6, intent.IPv6 = noIPv6, capture.Ignored
			_, err = netfilter.Reference(ctx, backend, capture.Rules(intent))
		}
		if err != nil {
			return found, fmt.Errorf("mesh %s: %w", mesh, err)
		}
	}
	return found, nil
}

// fullIntent returns an Intent whose rules contain every expression that a mesh's pods can need if they
// use the feature f.
func fullIntent(mesh config.MeshName, f Feature) capture.Intent {
	ids := []uint32{1, 2}
	ports := []uint16{1, 2}
	ranges := []netip.Prefix{
		netip.MustParsePrefix("192.0.2.0/25"), netip.MustParsePrefix("198.51.100.0/25"),
		netip.MustParsePrefix("2001:db8::/33"), netip.MustParsePrefix("2001:db9::/33"),
	}
	intent := capture.Intent{
		Mesh: mesh,
		IPv6: capture.Captured, DropInvalid: true, Transparent: f == TProxy, CaptureDNS: true, ProxyUID: 1, ProxyGID: 1,
		OutboundPort: 1, InboundPort: 2, TunnelPort: 3, DNSPort: 4,
		LoopbackCIDR:        netip.MustParsePrefix("127.0.0.0/8"),
		InboundPorts:        capture.Everything[uint16](),
		ExcludeInboundPorts: capture.Ports(ports...), ExcludeInboundRanges: ranges,
		IncludeOutboundPorts: ports, ExcludeOutboundPorts: capture.Ports(ports...),
		OutboundRanges:        capture.Selection[netip.Prefix]{Only: ranges},
		ExcludeOutboundRanges: ranges,
		ExcludeInterfaces:     []string{"a", "b"}, RerouteInterfaces: []string{"c", "d"},
		ExcludeOwnerGroups: ids,
		Exempt: []capture.Exempt{{
			Protocol: capture.TCP, Ports: capture.Ports(ports...), Ranges: ranges, UIDs: &capture.IDRange{First: 1, Last: 2},
		}},
		Translations: []capture.Translation{
			{To: netip.MustParseAddrPort("127.0.0.1:1")}, {To: netip.MustParseAddrPort("[::1]:1")},
		},
	}
	if f == Fence {
		intent.Fence = &capture.Fence{}
	}
	return intent
}
