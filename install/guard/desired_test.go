// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"maps"
	"net/netip"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/lookup"
)

// TestPacked wants the same rules of an Intent that was packed, in little memory.
func TestPacked(t *testing.T) {
	t.Parallel()
	long := capture.Intent{
		Mesh: config.Istio,
		IPv6: capture.Captured, Transparent: true, CaptureDNS: true, DropInvalid: true, OutboundPort: 1, InboundPort: 2, TunnelPort: 3, DNSPort: 4,
		ProxyUID: 5, ProxyGID: 6, LoopbackCIDR: netip.MustParsePrefix("127.0.0.1/32"), CaptureLoopback: true,
		InboundPorts: capture.Selection[uint16]{Only: []uint16{80, 81}}, ExcludeInboundPorts: []capture.PortRange{{First: 1, Last: 1}, {First: 2, Last: 65535}}, ExcludeInboundRanges: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		IncludeOutboundPorts: []uint16{7, 8}, ExcludeOutboundPorts: capture.Ports(9),
		OutboundRanges:    capture.Selection[netip.Prefix]{Only: []netip.Prefix{netip.MustParsePrefix("2001:db8::/32")}},
		ExcludeInterfaces: []string{"eth1"}, RerouteInterfaces: []string{"net1", "net2"}, OwnerGroups: []uint32{1000, 1001},
	}
	for i := range 10_000 {
		long.ExcludeOutboundRanges = append(long.ExcludeOutboundRanges, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24))
	}
	all := capture.Intent{Mesh: config.Istio, InboundPorts: capture.Everything[uint16](), OutboundRanges: capture.Everything[netip.Prefix]()}
	for _, intent := range []capture.Intent{{Mesh: config.Istio}, all, long} {
		packed, err := pack(intent)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := capture.Rules(packed.unpack()).Stamp(), capture.Rules(intent).Stamp(); got != want {
			t.Errorf("got the rules %s, want %s", got, want)
		}
		if most := 10 * len(intent.ExcludeOutboundRanges); len(packed) > most+1000 {
			t.Errorf("%d bytes for %d ranges", len(packed), len(intent.ExcludeOutboundRanges))
		}
	}
}

// TestDecide decides by the annotations of the pod's creation, and reports an edit since.
func TestDecide(t *testing.T) {
	t.Parallel()
	const ranges, mode = "traffic.sidecar.istio.io/includeOutboundIPRanges", "sidecar.istio.io/interceptionMode"
	for name, tt := range map[string]struct {
		edited  map[string]string
		changed bool
	}{
		"as it was made":      {nil, false},
		"loosened":            {map[string]string{ranges: ""}, true},
		"made invalid":        {map[string]string{ranges: "no range"}, true},
		"exempted":            {map[string]string{mode: "NONE"}, true},
		"nothing that counts": {map[string]string{"example.com/other": "x"}, false},
	} {
		n, _ := newPodNode(t, Settings{})
		decided := func() desired {
			asked, err := newAsked(&lookup.Answer{Pod: &n.pod}, n.sandbox, config.DefaultSettings())
			lab.Check(t, err)
			d, err := asked.at([]netip.Addr{netip.MustParseAddr("192.0.2.2")}, UpdateNever)
			lab.Check(t, err)
			return d
		}
		made := decided()
		maps.Copy(n.pod.Annotations, tt.edited)
		if now := decided(); now.changed != tt.changed || now.stamp != made.stamp || now.stamp == "" || now.exemption.Cause != "" {
			t.Errorf("%s: %+v, made as %+v", name, now, made)
		} else if stamp := now.rules().Stamp(); stamp != now.stamp {
			t.Errorf("%s: its rules are %s, and not %s", name, stamp, now.stamp)
		}
		n.sandbox.Annotations[ranges] = "no range"
		if _, err := newAsked(&lookup.Answer{Pod: &n.pod}, n.sandbox, config.DefaultSettings()); err == nil {
			t.Errorf("%s: made invalid, it is decided", name)
		}
	}
}
