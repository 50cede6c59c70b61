// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// TestHasController accepts only a controller that would replace the pod.
func TestHasController(t *testing.T) {
	t.Parallel()
	controller := true
	by := func(kind string, isController *bool) metav1.OwnerReference {
		return metav1.OwnerReference{Kind: kind, Name: "web", Controller: isController}
	}
	for name, tt := range map[string]struct {
		owners []metav1.OwnerReference
		want   bool
	}{
		"no owner":                          {nil, false},
		"a ReplicaSet":                      {[]metav1.OwnerReference{by("ReplicaSet", &controller)}, true},
		"a DaemonSet":                       {[]metav1.OwnerReference{by("DaemonSet", &controller)}, true},
		"a Job":                             {[]metav1.OwnerReference{by("Job", &controller)}, true},
		"a static pod's Node":               {[]metav1.OwnerReference{by("Node", &controller)}, false},
		"an owner that is no controller":    {[]metav1.OwnerReference{by("ReplicaSet", new(bool)), by("ConfigMap", nil)}, false},
		"a controller among others":         {[]metav1.OwnerReference{by("ConfigMap", nil), by("StatefulSet", &controller)}, true},
		"a Node, and another not in charge": {[]metav1.OwnerReference{by("ReplicaSet", nil), by("Node", &controller)}, false},
	} {
		if got := hasController(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: tt.owners}}); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestPacked wants the same rules of an Intent that was packed, in little memory.
func TestPacked(t *testing.T) {
	t.Parallel()
	long := capture.Intent{
		IPv6: true, Transparent: true, CaptureDNS: true, DropInvalid: true, OutboundPort: 1, InboundPort: 2, TunnelPort: 3, DNSPort: 4,
		ProxyUID: 5, ProxyGID: 6, LoopbackCIDR: netip.MustParsePrefix("127.0.0.1/32"), CaptureLoopback: true,
		InboundPorts: capture.Selection[uint16]{Only: []uint16{80, 81}}, ExcludeInboundPorts: []uint16{1, 2},
		IncludeOutboundPorts: []uint16{7, 8}, ExcludeOutboundPorts: []uint16{9},
		OutboundRanges:    capture.Selection[netip.Prefix]{Only: []netip.Prefix{netip.MustParsePrefix("2001:db8::/32")}},
		ExcludeInterfaces: []string{"eth1"}, RerouteInterfaces: []string{"net1", "net2"}, OwnerGroups: []uint32{1000, 1001},
	}
	for i := range 10_000 {
		long.ExcludeOutboundRanges = append(long.ExcludeOutboundRanges, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24))
	}
	all := capture.Intent{InboundPorts: capture.Everything[uint16](), OutboundRanges: capture.Everything[netip.Prefix]()}
	for _, intent := range []capture.Intent{{}, all, long} {
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
