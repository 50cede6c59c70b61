// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"maps"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// sidecarRoot is the proxy's owner that the injector sets in the mode TPROXY: the
// proxy needs root's capabilities, so only its group identifies it.
var sidecarRoot = lab.Owner{UID: 0, GID: 1337}

// tproxy completes annotations.
func tproxy(annotations map[string]string) map[string]string {
	all := maps.Clone(annotations)
	if all == nil {
		all = map[string]string{}
	}
	all["sidecar.istio.io/interceptionMode"] = "TPROXY"
	return all
}

// transparentDefaults are rows T1 and T2 of the truth table, and all others
// that hold in this mode, too.
var transparentDefaults = append([]probe{
	out(proxyGID, podIP, 8080, inbound), out(sidecarRoot, podIP, 8080, inbound), // T2
	out(proxyGID, onlyIPv4(otherLocal), 8080, inbound), out(sidecarRoot, podIP, 15008, direct),
	out(sidecarRoot, podIP, 15020, direct), out(sidecarRoot, localhost, 8080, direct), out(sidecarRoot, external, 80, direct),
	{by: sidecarRoot, from: proxySource, to: podIP, port: 8080, want: direct},
}, common...)

var transparentScenarios = []scenario{
	{name: "TPROXY, defaults", annotations: tproxy(nil), probes: transparentDefaults},
	{
		name:        "TPROXY, invalid packets dropped",
		annotations: tproxy(nil), env: map[string]string{"INVALID_DROP": "true"}, probes: transparentDefaults,
	},
	{
		name:        "TPROXY, inbound list",
		annotations: tproxy(map[string]string{"includeInboundPorts": "8080, 15090", "excludeInboundPorts": "8080"}),
		probes: []probe{
			in(podIP, 8080, inbound), in(podIP, 15090, inbound), in(podIP, 9000, direct), in(podIP, 15021, direct), in(podIP, 15008, direct),
			out(sidecarRoot, podIP, 8080, inbound), out(sidecarRoot, podIP, 9000, direct), out(app, podIP, 8080, direct), out(app, external, 80, outbound),
		},
	},
	{
		name:        "TPROXY, no inbound",
		annotations: tproxy(map[string]string{"includeInboundPorts": ""}),
		probes: []probe{
			in(podIP, 8080, direct), out(sidecarRoot, podIP, 8080, direct), out(proxy, podIP, 8080, inbound), out(app, external, 80, outbound),
		},
	},
	{
		name:        "TPROXY, excluded inbound ports",
		annotations: tproxy(map[string]string{"excludeInboundPorts": "9000,9001"}),
		probes: []probe{
			in(podIP, 9000, direct), in(podIP, 9001, direct), in(podIP, 15021, direct), in(podIP, 8080, inbound), out(sidecarRoot, podIP, 9000, direct),
		},
	},
	{
		name:        "TPROXY, excluded interfaces",
		annotations: tproxy(map[string]string{"excludeInterfaces": "net1, net9"}),
		probes: []probe{
			in(secondIP, 8080, direct), out(app, secondPeer, 80, direct), in(podIP, 8080, inbound), out(app, external, 80, outbound),
		},
	},
	{
		name:        "TPROXY, rerouted interface",
		annotations: tproxy(map[string]string{"istio.io/reroute-virtual-interfaces": "net1", "excludeInterfaces": "net1"}),
		probes:      []probe{in(secondIP, 8080, outbound), in(podIP, 8080, inbound), out(app, secondPeer, 80, direct)},
	},
	{
		name:        "TPROXY, rerouted interface with ranges",
		annotations: tproxy(map[string]string{"istio.io/reroute-virtual-interfaces": "net1,net9", "includeOutboundIPRanges": "9.9.9.9/32,2001:db8:9::/48"}),
		probes:      []probe{in(secondIP, 8080, direct), in(podIP, 8080, inbound), out(app, external, 80, direct), out(app, included, 80, outbound)},
	},
	{
		name:        "TPROXY, a loopback range",
		annotations: tproxy(map[string]string{"includeOutboundIPRanges": "127.0.0.0/8,10.77.0.0/24,fd77::/64"}),
		probes: []probe{
			out(app, localhost, 8080, direct), out(app, podIP, 8080, outbound), out(proxyGID, podIP, 8080, inbound), in(podIP, 8080, inbound),
		},
	},
	{
		name:        "TPROXY, the proxy's ids from its container",
		annotations: tproxy(nil),
		pod: func(p *corev1.Pod) {
			p.Spec.Containers[1].SecurityContext = &corev1.SecurityContext{RunAsUser: new(int64(2000)), RunAsGroup: new(int64(2001))}
		},
		probes: []probe{
			out(lab.Owner{UID: 2000, GID: 5}, external, 80, direct), out(lab.Owner{UID: 5, GID: 2001}, podIP, 8080, inbound),
			out(lab.Owner{UID: 2000, GID: 5}, podIP, 8080, inbound), out(proxy, external, 80, outbound), in(podIP, 8080, inbound),
		},
	},
}
