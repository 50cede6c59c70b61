// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// The neighbour is a host behind a bridge in the pod: a container of docker-in-docker, or
// a virtual machine.
var (
	neighbourIP = dst{"172.17.0.2", "fd17::2"}
	bridgeIP    = dst{"172.17.0.1", "fd17::1"}
)

// ways by which a neighbour's packets leave the pod: with the pod's address, or their own.
var forwarding = map[string]func(t *testing.T, w world){
	"masquerade": func(t *testing.T, w world) {
		w.pod.Load(t, `table inet docker {
	chain postrouting {
		type nat hook postrouting priority 100
		oifname "eth0" ip saddr 172.17.0.0/16 masquerade
		oifname "eth0" ip6 saddr fd17::/64 masquerade
	}
}`)
	},
	"routed": func(t *testing.T, w world) {
		lab.Check(t, w.peer.AddDefaultRoute(podIP[ipv4]))
		lab.Check(t, w.peer.AddDefaultRoute(podIP[ipv6]))
	},
}

// TestForwardedDNS sends queries through a pod that captures DNS: those that it forwards
// are answered by their resolver, and its own ones are decided as without a neighbour.
func TestForwardedDNS(t *testing.T) {
	t.Parallel()
	istio := func(annotations map[string]string) *corev1.Pod { return injected(spelled(annotations), captureDNS) }
	own := map[string]string{"outbound-port": "15001", "dns-port": "15053"}
	cases := []struct {
		name  string
		pod   *corev1.Pod
		proxy lab.Owner
		tcp   string // who answers the neighbour's query over TCP
		pods  string // who answers the pod's own
	}{
		{"Istio", istio(nil), proxy, inbound, resolver},
		{"Istio, TPROXY", istio(tproxy(nil)), proxy, inbound, resolver},
		{"Istio, the bridge excluded", istio(map[string]string{"excludeInterfaces": "docker0"}), proxy, direct, resolver},
		{"Istio, the bridge rerouted", istio(map[string]string{"istio.io/reroute-virtual-interfaces": "docker0"}), proxy, outbound, resolver},
		{"Istio, eth0 excluded", istio(map[string]string{"excludeInterfaces": "eth0"}), proxy, inbound, direct},
		{"own keys", sidecarPod(own), sidecarProxy, direct, resolver},
	}
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		for way, prepare := range forwarding {
			worlds, neighbours, parent := map[lab.Owner]world{}, map[lab.Owner]*lab.Host{}, t
			for _, c := range cases {
				t.Run(c.name+", "+way, func(t *testing.T) {
					if _, ok := worlds[c.proxy]; !ok {
						mesh := istioMesh
						mesh.ProxyUID, mesh.ProxyGID = uint32(c.proxy.UID), uint32(c.proxy.GID)
						worlds[c.proxy] = newProbeWorld(parent, []int{53}, mesh)
						neighbours[c.proxy] = worlds[c.proxy].newNeighbour(parent)
						prepare(parent, worlds[c.proxy])
					}
					w, behind := worlds[c.proxy], world{pod: neighbours[c.proxy], servers: worlds[c.proxy].servers}
					w.capture(t, backend, decide(t, c.pod, dualStack()))
					for range 2 { // the second query may meet what conntrack has of the first
						behind.probeAll(t, udp(out(app, external, 53, direct)), udp(out(app, bridgeIP, 53, direct)))
						w.probeAll(t, queries(app, external, c.pods)...)
						w.probeAll(t, udp(out(c.proxy, external, 53, direct)), udp(in(podIP, 53, direct)))
					}
					for _, f := range bothFamilies {
						if answer, _, err := behind.ask(out(app, external, 53, c.tcp), f); answer.Server != c.tcp {
							t.Errorf("%s: TCP is answered by %q, want %q (%v)", f, answer.Server, c.tcp, err)
						}
					}
				})
			}
		}
	})
}

// newNeighbour adds a host behind a bridge of the pod, which routes.
func (w world) newNeighbour(t *testing.T) *lab.Host {
	t.Helper()
	neighbour := lab.StartHost(t)
	lab.Check(t, lab.Link(
		lab.Interface{Host: w.pod, Name: "docker0", Addresses: []string{bridgeIP[ipv4] + "/16", bridgeIP[ipv6] + "/64"}},
		lab.Interface{Host: neighbour, Name: "eth0", Addresses: []string{neighbourIP[ipv4] + "/16", neighbourIP[ipv6] + "/64"}}))
	lab.Check(t, neighbour.AddDefaultRoute(bridgeIP[ipv4]))
	lab.Check(t, neighbour.AddDefaultRoute(bridgeIP[ipv6]))
	lab.Check(t, w.pod.Do(forward))
	lab.Check(t, w.pod.WaitForIPv6())
	lab.Check(t, neighbour.WaitForIPv6())
	return neighbour
}

// TestPort53IsAlsoAClient has clients send from port 53: what the pod's server answers is
// no query, and a query of the pod from that port is one, also where IPv6 is refused.
func TestPort53IsAlsoAClient(t *testing.T) {
	t.Parallel()
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		for name, pod := range map[string]struct {
			addresses []netip.Addr
			want      [2]string // of the pod's query
		}{
			"both families": {podAddresses(), [2]string{resolver, resolver}},
			"IPv4 only":     {podAddresses()[:1], [2]string{resolver, refused}},
		} {
			t.Run(name, func(t *testing.T) {
				w := newLinks(t)
				w.sidecar(t, proxy, istioMesh)
				w.serve(t, w.pod, "udp", 7, direct)
				decision, err := lab.Decide(injected(nil, captureDNS), dualStack(), pod.addresses...)
				lab.Check(t, err)
				lab.Check(t, open(t, w.pod, backend).Apply(capture.Rules(decision.Intent)))
				for _, f := range bothFamilies {
					from := func(d dst) dst { return dst{d[ipv4] + ":53", "[" + d[ipv6] + "]:53"} }
					for range 2 {
						client := udp(in(podIP, 7, direct))
						client.by, client.from = rootUser, from(secondPeer)
						w.probe(t, client, f)
						query := udp(out(rootUser, external, 53, pod.want[f]))
						query.from = from(podIP)
						w.probe(t, query, f)
					}
				}
			})
		}
	})
}

// TestPublishedPort publishes ports of the pod, before the rules are made and afterwards: the
// rules decide first, and docker about what they exempt.
func TestPublishedPort(t *testing.T) {
	t.Parallel()
	publish := func(t *testing.T, w world) {
		w.pod.Load(t, `table inet docker {
	chain PREROUTING {
		type nat hook prerouting priority dstnat
		iifname "eth0" tcp dport { 8080, 9000 } dnat ip to 172.17.0.2:7000
	}
}`)
	}
	rules := func(t *testing.T, w world) {
		pod := injected(spelled(map[string]string{"excludeInboundPorts": "9000"}), nil)
		lab.Check(t, open(t, w.pod, config.NFTables).Apply(decide(t, pod, dualStack())))
	}
	for name, steps := range map[string][]func(*testing.T, world){"docker first": {publish, rules}, "docker last": {rules, publish}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, []int{80, 8080}, istioMesh)
			w.serve(t, w.newNeighbour(t), "tcp", 7000, direct)
			for _, step := range steps {
				step(t, w)
			}
			w.probe(t, in(podIP, 8080, inbound), ipv4)
			w.probe(t, in(podIP, 9000, direct), ipv4)
		})
	}
}
