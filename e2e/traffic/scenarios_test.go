// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// probe is one connection and the process that must answer it.
type probe struct {
	by     lab.Owner
	from   dst // source address
	to     dst
	port   int
	want   string
	udp    bool
	remote bool // sent by the peer
}

// scenario is what a pod asks for and what its connections then meet, over
// both families alike.
type scenario struct {
	name        string
	annotations map[string]string // under traffic.sidecar.istio.io/, unless they say otherwise
	env         map[string]string
	pod         func(*corev1.Pod)
	settings    func(*config.Settings)
	probes      []probe
}

func out(by lab.Owner, to dst, port int, want string) probe {
	return probe{by: by, to: to, port: port, want: want}
}

func in(to dst, port int, want string) probe {
	return probe{to: to, port: port, want: want, remote: true}
}

func udp(p probe) probe { p.udp = true; return p }

// common is Istio's truth table for a pod that asks for nothing in particular,
// as far as it is the same in both modes; the numbers are its rows.
var common = []probe{
	in(podIP, 8080, inbound), in(podIP, 15006, inbound), // 1
	in(podIP, 15008, direct), in(podIP, 15020, direct), in(podIP, 15021, direct), in(podIP, 15090, direct), // 2
	udp(in(podIP, 8080, direct)),                                            // 3
	out(app, external, 80, outbound), out(rootUser, external, 80, outbound), // 4
	out(app, external, 15020, direct), udp(out(app, external, 15020, direct)), // 5
	udp(out(app, external, 80, direct)), udp(out(app, external, 53, direct)), // 6, 16'
	out(app, localhost, 8080, direct), out(app, otherLocal, 8080, direct), // 7
	out(app, localhost, 53, direct), out(app, external, 53, outbound), // 16'
	out(app, podIP, 8080, direct), out(app, secondIP, 8080, direct), // 8
	out(proxy, external, 80, direct), out(proxyUID, external, 80, direct), // 9
	out(proxy, localhost, 8080, direct),                                   // 10
	out(proxy, podIP, 8080, inbound), out(proxyUID, podIP, 8080, inbound), // 11
	out(proxy, onlyIPv4(otherLocal), 8080, inbound),                           // 11
	out(proxy, podIP, 15008, direct),                                          // 12
	{by: proxy, from: proxySource, to: podIP, port: 8080, want: direct},       // 13
	out(proxyGID, external, 80, direct),                                       // 15
	{by: proxy, from: localhost, to: probeTarget, port: 15002, want: inbound}, // 19
	out(app, serviceVIP, 80, outbound), out(proxy, serviceVIP, 80, inbound),   // back to the pod, through the peer
	in(secondIP, 8080, inbound), out(app, secondPeer, 80, outbound), // two interfaces
}

var defaults = append(slices.Clone(common), out(proxyGID, podIP, 8080, direct)) // 14

var redirectScenarios = []scenario{
	{name: "defaults", probes: defaults},
	{
		name:        "the same, spelled out",
		annotations: map[string]string{"includeInboundPorts": " * ", "includeOutboundIPRanges": "*", "excludeInboundPorts": "15020", "excludeOutboundIPRanges": "", "sidecar.istio.io/interceptionMode": "REDIRECT"},
		probes:      defaults,
	},
	{
		name:        "inbound list",
		annotations: map[string]string{"includeInboundPorts": "8080, 15090", "excludeInboundPorts": "8080"},
		probes: []probe{
			in(podIP, 8080, inbound), in(podIP, 15090, inbound), in(podIP, 9000, direct), in(podIP, 15021, direct),
			in(podIP, 15008, direct), out(app, external, 80, outbound),
		},
	},
	{
		name:        "no inbound",
		annotations: map[string]string{"includeInboundPorts": ""},
		probes:      []probe{in(podIP, 8080, direct), out(app, external, 80, outbound), out(proxy, podIP, 8080, inbound)},
	},
	{
		name:        "excluded inbound ports",
		annotations: map[string]string{"excludeInboundPorts": "9000,9001"},
		probes:      []probe{in(podIP, 9000, direct), in(podIP, 9001, direct), in(podIP, 15021, direct), in(podIP, 8080, inbound)},
	},
	{
		name:        "excluded outbound ports replace the default",
		annotations: map[string]string{"excludeOutboundPorts": "9000,9001"},
		probes: []probe{
			out(app, external, 9000, direct), out(app, external, 9001, direct), out(app, external, 80, outbound),
			out(app, external, 15020, outbound), out(proxy, podIP, 9000, direct), udp(out(app, external, 9000, direct)),
		},
	},
	{
		name:        "excluded ranges",
		annotations: map[string]string{"excludeOutboundIPRanges": "10.1.0.0/16, 10.1.2.0/24,10.1.0.0/16,2001:db8:1::/48"},
		probes:      []probe{out(app, excluded, 80, direct), out(app, included, 80, outbound), out(app, external, 80, outbound), out(proxy, podIP, 8080, inbound)},
	},
	{
		name:        "included ranges honour the excluded ones",
		annotations: map[string]string{"includeOutboundIPRanges": "9.9.9.0/24,10.0.0.0/8,2001:db8::/32", "excludeOutboundIPRanges": "10.1.2.3/32,2001:db8:1::/48"},
		probes:      []probe{out(app, included, 80, outbound), out(app, excluded, 80, direct)},
	},
	{
		name:        "one included range",
		annotations: map[string]string{"includeOutboundIPRanges": "9.9.9.9/32,2001:db8:9::9/128"},
		probes:      []probe{out(app, included, 80, outbound), out(app, excluded, 80, direct), out(app, external, 80, direct), in(podIP, 8080, inbound)},
	},
	{
		name:        "everything as ranges",
		annotations: map[string]string{"includeOutboundIPRanges": "0.0.0.0/0,::/0"},
		probes:      []probe{out(app, included, 80, outbound), out(app, external, 80, outbound), out(app, localhost, 8080, direct)},
	},
	{
		name:        "no range, included ports",
		annotations: map[string]string{"includeOutboundIPRanges": "", "includeOutboundPorts": "9000,9001"},
		probes:      []probe{out(app, external, 9000, outbound), out(app, external, 9001, outbound), out(app, external, 80, direct), out(app, localhost, 9000, direct)},
	},
	{
		name:        "included ports don't lift excluded ranges",
		annotations: map[string]string{"includeOutboundPorts": "9000", "excludeOutboundIPRanges": "10.1.2.3/32,2001:db8:1::3/128"},
		probes:      []probe{out(app, excluded, 9000, direct), out(app, included, 9000, outbound)},
	},
	{
		name:        "a loopback range lifts the loopback exemption",
		annotations: map[string]string{"includeOutboundIPRanges": "127.0.0.0/8,10.77.0.0/24,fd77::/64"},
		probes: []probe{
			out(app, localhost, 8080, direct), out(app, podIP, 8080, outbound), out(proxyGID, podIP, 8080, inbound),
			out(proxy, podIP, 8080, inbound), out(proxy, localhost, 8080, direct), out(app, included, 80, direct),
		},
	},
	{
		name:        "excluded interfaces",
		annotations: map[string]string{"excludeInterfaces": "net1, net9"},
		probes:      []probe{in(secondIP, 8080, direct), out(app, secondPeer, 80, direct), in(podIP, 8080, inbound), out(app, external, 80, outbound)},
	},
	{
		name:        "rerouted interface",
		annotations: map[string]string{"istio.io/reroute-virtual-interfaces": "net1", "kubevirtInterfaces": "eth0"},
		probes:      []probe{in(secondIP, 8080, outbound), in(podIP, 8080, inbound)},
	},
	{
		name:        "rerouted interface, by the old key, with ranges",
		annotations: map[string]string{"kubevirtInterfaces": "net1,net9", "includeOutboundIPRanges": "10.78.0.2/32,fd78::2/128"},
		probes:      []probe{in(secondIP, 8080, outbound), in(podIP, 8080, inbound), out(app, external, 80, direct)},
	},
	{
		name:        "rerouted interface, other range",
		annotations: map[string]string{"istio.io/reroute-virtual-interfaces": "net1", "includeOutboundIPRanges": "9.9.9.9/32"},
		probes:      []probe{in(secondIP, 8080, direct), in(podIP, 8080, inbound)},
	},
	{
		name:        "rerouted wins over excluded",
		annotations: map[string]string{"istio.io/reroute-virtual-interfaces": "net1", "excludeInterfaces": "net1"},
		probes:      []probe{in(secondIP, 8080, outbound), out(app, secondPeer, 80, direct), in(podIP, 8080, inbound)},
	},
	{
		name:        "an IPv6 loopback range lifts the exemption of both families",
		annotations: map[string]string{"includeOutboundIPRanges": "::1/128,10.77.0.0/24,fd77::/64"},
		probes:      []probe{out(app, localhost, 8080, direct), out(app, podIP, 8080, outbound), out(proxyUID, podIP, 8080, inbound)},
	},
	{
		name:        "the last ports there are",
		annotations: map[string]string{"excludeInboundPorts": "65534,65535", "excludeOutboundPorts": "1,65535"},
		probes: []probe{
			in(podIP, 65534, direct), in(podIP, 65535, direct), in(podIP, 65533, inbound),
			out(app, external, 65535, direct), out(app, external, 65534, outbound), out(app, external, 1, direct),
		},
	},
	{
		name: "the proxy's ids from its container",
		pod: func(p *corev1.Pod) {
			p.Spec.Containers[1].SecurityContext = &corev1.SecurityContext{RunAsUser: new(int64(2000)), RunAsGroup: new(int64(2001))}
		},
		probes: []probe{
			out(lab.Owner{UID: 2000, GID: 5}, external, 80, direct), out(lab.Owner{UID: 5, GID: 2001}, external, 80, direct),
			out(lab.Owner{UID: 2000, GID: 2001}, podIP, 8080, inbound), out(proxy, external, 80, outbound),
		},
	},
	{
		name: "the mesh's settings",
		settings: func(s *config.Settings) {
			s.Mesh.OutboundPort, s.Mesh.InboundPort, s.Mesh.TunnelPort = 16001, 16006, 16008
			s.Mesh.ProxyUID, s.Mesh.ProxyGID = 3000, 3001
			s.Mesh.ExcludeInboundPorts, s.Mesh.ExcludeOutboundPorts = []uint16{9000}, []uint16{9001}
			s.Mesh.ExcludeOutboundIPRanges = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("2001:db8:1::/48")}
			s.Mesh.LoopbackCIDR = netip.MustParsePrefix("127.0.0.0/8")
		},
		annotations: map[string]string{"excludeInboundPorts": "15021"},
		probes: []probe{
			out(app, external, 80, outbound), in(podIP, 8080, inbound), in(podIP, 16008, direct), in(podIP, 9000, direct),
			in(podIP, 15021, direct), out(app, external, 9001, direct), out(app, external, 15020, direct), out(app, excluded, 80, direct),
			out(lab.Owner{UID: 3000, GID: 1}, external, 80, direct), out(lab.Owner{UID: 1, GID: 3001}, external, 80, direct),
			out(lab.Owner{UID: 3000, GID: 1}, onlyIPv4(otherLocal), 8080, direct),
		},
	},
	{
		name:     "only some groups",
		settings: func(s *config.Settings) { s.Mesh.OutboundOwnerGroups = []uint32{1000, 5} },
		probes:   []probe{out(app, external, 80, outbound), out(lab.Owner{UID: 1, GID: 6}, external, 80, direct), out(lab.Owner{UID: 1, GID: 5}, external, 80, outbound), out(rootUser, external, 80, direct), out(proxy, podIP, 8080, inbound)},
	},
	{
		name:     "all but some groups",
		settings: func(s *config.Settings) { s.Mesh.OutboundOwnerGroupsExclude = []uint32{0, 5} },
		probes:   []probe{out(app, external, 80, outbound), out(lab.Owner{UID: 1, GID: 5}, external, 80, direct), out(rootUser, external, 80, direct)},
	},
}

var scenarios = slices.Concat(redirectScenarios, transparentScenarios, dnsScenarios)

func TestScenarios(t *testing.T) {
	t.Parallel()
	var probes []probe
	for _, s := range scenarios {
		probes = append(probes, s.probes...)
	}
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		parent, worlds := t, map[[2]uint16]world{} // by the proxy's ports
		for _, s := range scenarios {
			t.Run(s.name, func(t *testing.T) {
				settings := dualStack()
				s.set(&settings)
				key := [2]uint16{settings.Mesh.OutboundPort, settings.Mesh.DNSPort}
				if _, ok := worlds[key]; !ok {
					worlds[key] = newProbeWorld(parent, ports(probes), settings.Mesh)
				}
				worlds[key].capture(t, backend, decide(t, s.injected(), settings))
				worlds[key].probeAll(t, s.probes...)
			})
		}
	})
}

// injected is the scenario's pod.
func (s scenario) injected() *corev1.Pod {
	pod := injected(spelled(s.annotations), s.env)
	if s.pod != nil {
		s.pod(pod)
	}
	return pod
}

func ports(probes []probe) []int {
	list := []int{80, 8080}
	for _, p := range probes {
		list = append(list, p.port)
	}
	slices.Sort(list)
	return slices.Compact(slices.DeleteFunc(list, func(port int) bool { return port == 15006 })) // where the proxy listens
}
