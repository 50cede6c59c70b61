// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"net/netip"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

var captureDNS = map[string]string{"ISTIO_META_DNS_CAPTURE": "true"}

// both makes a probe of each protocol.
func both(p probe) []probe { return []probe{p, udp(p)} }

func queries(by lab.Owner, to dst, want string) []probe { return both(out(by, to, 53, want)) }

func concat(lists ...[]probe) (all []probe) {
	for _, list := range lists {
		all = append(all, list...)
	}
	return all
}

// resolved are rows 16 to 17' of the truth table, as far as they are the same
// in both modes.
var resolved = concat(
	queries(app, external, resolver), queries(rootUser, included, resolver), // 16
	queries(app, localhost, resolver), queries(app, onlyIPv4(dst{"127.0.0.53"}), resolver), queries(app, podIP, resolver), // 16
	queries(proxy, external, direct), queries(proxyUID, external, direct), queries(proxyGID, external, direct), // 17
	queries(proxy, localhost, direct), queries(proxyGID, localhost, direct), // 17
	[]probe{out(proxyGID, podIP, 53, inbound), in(podIP, 53, inbound), udp(in(podIP, 53, direct))}, // 17'
	[]probe{
		out(app, external, 80, outbound), udp(out(app, external, 80, direct)), out(app, localhost, 8080, direct),
		in(podIP, 8080, inbound), out(proxy, podIP, 8080, inbound), out(proxy, external, 80, direct),
	},
)

var dnsScenarios = []scenario{
	{name: "DNS", env: captureDNS, probes: concat(resolved, queries(proxyUID, podIP, direct))}, // 17'
	{
		name: "DNS, TPROXY", annotations: tproxy(nil), env: captureDNS,
		probes: append(resolved, out(proxyUID, podIP, 53, inbound), udp(out(proxyUID, podIP, 53, direct))), // T2
	},
	{
		name: "DNS, excluded port", env: captureDNS, annotations: map[string]string{"excludeOutboundPorts": "53"},
		probes: concat(queries(app, external, direct), queries(app, localhost, direct), queries(proxy, external, direct)), // 18
	},
	{
		name: "DNS, excluded ranges have no say", env: captureDNS,
		annotations: map[string]string{"excludeOutboundIPRanges": "10.1.2.3/32,2001:db8:1::3/128", "includeOutboundIPRanges": ""},
		probes:      concat(queries(app, excluded, resolver), queries(app, external, resolver), []probe{out(app, external, 80, direct)}),
	},
	{
		name: "DNS, a loopback range", env: captureDNS, annotations: map[string]string{"includeOutboundIPRanges": "127.0.0.0/8,10.77.0.0/24,fd77::/64"},
		probes: concat(queries(app, localhost, resolver), queries(proxy, localhost, direct), []probe{out(proxyGID, podIP, 53, inbound), out(app, podIP, 8080, outbound)}),
	},
	{
		name: "DNS, excluded interfaces", env: captureDNS, annotations: map[string]string{"excludeInterfaces": "net1"},
		probes: concat(queries(app, secondPeer, direct), queries(app, external, resolver), queries(proxy, secondPeer, direct)),
	},
	{
		name: "DNS, lo excluded", env: captureDNS, annotations: map[string]string{"excludeInterfaces": "lo"},
		probes: concat(queries(app, external, resolver), queries(app, localhost, direct), queries(proxy, external, direct)),
	},
	{
		name: "DNS, only some groups", env: captureDNS,
		settings: func(s *config.Settings) { s.Mesh.OutboundOwnerGroups = []uint32{1000, 5} },
		probes:   concat(queries(app, external, resolver), queries(rootUser, external, direct), queries(rootUser, localhost, direct), queries(proxy, external, direct)),
	},
	{
		name: "DNS, all but some groups", env: captureDNS,
		settings: func(s *config.Settings) { s.Mesh.OutboundOwnerGroupsExclude = []uint32{0, 5} },
		probes:   concat(queries(app, external, resolver), queries(rootUser, external, direct), queries(rootUser, localhost, direct), queries(proxy, external, direct)),
	},
	{
		name: "DNS, the mesh's port", env: captureDNS,
		settings: func(s *config.Settings) { s.Mesh.DNSPort = 16053 },
		probes:   concat(queries(app, external, resolver), queries(proxy, external, direct)),
	},
}

// TestZones has the proxy send its query from the very port that the
// application sent the same query from: conntrack must not take the two for one.
func TestZones(t *testing.T) {
	t.Parallel()
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		w := newWorld(t, []int{53}, istioMesh)
		lab.Check(t, open(t, w.pod, backend).Apply(decide(t, injected(nil, captureDNS), dualStack())))
		for f, from := range map[family]string{ipv4: "10.77.0.2:20053", ipv6: "[fd77::2]:20053"} {
			to := netip.AddrPortFrom(netip.MustParseAddr(external[f]), 53).String()
			for _, query := range []struct {
				by   lab.Owner
				want string
			}{{app, resolver}, {proxy, direct}, {app, resolver}} {
				answer, err := w.pod.Ask(query.by, "udp", from, to)
				if err != nil || answer.Server != query.want {
					t.Errorf("%s: %v from %s is answered by %q, want %q (%v)", f, query.by, from, answer.Server, query.want, err)
				}
			}
		}
	})
}
