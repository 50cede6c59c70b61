// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"net/netip"
	"testing"

	"github.com/capture-cni/capture-cni/config"
)

// MadeUp is a mesh that only tests have: its proxy listens on 4000 and 4001, and runs with
// uid 4000. One of its keys decides.
const MadeUp config.MeshName = "made-up"

// AddMadeUpMesh adds the mesh until the test ends. It shows what another mesh takes: this one
// value. Parallel tests must not run meanwhile.
func AddMadeUpMesh(t *testing.T) {
	const proxy, mark, skipped = "made-up-proxy", "made-up.example/injected", "made-up.example/skip-outbound-ports"
	before := meshes
	t.Cleanup(func() { meshes = before })
	meshes = append(meshes[:len(meshes):len(meshes)], &mesh{
		name:        MadeUp,
		mark:        mark,
		annotations: []Annotation{{mark, "any", "absent", "it is injected"}, {skipped, "ports", "empty", "not captured"}},
		container:   proxy,
		read: func(d *decider) Intent {
			in := Intent{
				Mesh: MadeUp, InboundPort: 4000, OutboundPort: 4001, ProxyUID: d.proxyID("uid", Container.uid, 4000),
				InboundPorts: Everything[uint16](), OutboundRanges: Everything[netip.Prefix](),
				ExcludeOutboundPorts: Ports(listOf(d, skipped, "", config.ParsePort)...),
			}
			return in
		},
		inbound: func(*Intent) (f flow) {
			f.add(Match{Protocol: TCP}, toInbound, "everything")
			return f
		},
		outbound: func(in *Intent) (f flow) {
			f.exempt(Match{UID: one(in.ProxyUID)}, "sent by the proxy's user")
			f.exempt(tcpPorts("exclude_outbound_ports", in.ExcludeOutboundPorts...), "skipped outbound port")
			f.add(Match{Protocol: TCP}, toOutbound, "everything else")
			return f
		},
	})
}
