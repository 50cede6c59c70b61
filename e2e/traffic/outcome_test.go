// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"maps"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/kernel"
	"github.com/capture-cni/capture-cni/install/trace"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// met is a path of connections, and the outcome as which they count.
type met struct {
	probe
	decision, reason string
}

// outcomes are the paths of one pod.
type outcomes struct {
	scenario
	fenced    bool
	addresses []netip.Addr // of the pod; nil for one of each family
	paths     []met
}

var everyOutcome = []outcomes{
	{
		scenario: scenario{
			name: "exclusions", env: map[string]string{"ISTIO_META_DNS_CAPTURE": "true"},
			annotations: map[string]string{
				"excludeInboundPorts": "8081", "excludeOutboundPorts": "8082", "excludeOutboundIPRanges": excluded[ipv4] + "/32," + excluded[ipv6] + "/128",
				"excludeInterfaces": "net1",
			},
			settings: func(s *config.Settings) { s.Mesh.OutboundOwnerGroupsExclude = []uint32{4711} },
		},
		paths: []met{
			{in(podIP, 8080, inbound), "captured", "inbound"},
			{out(app, external, 80, outbound), "captured", "outbound"},
			{out(app, external, 53, resolver), "captured", "dns"},
			{udp(out(app, external, 53, resolver)), "captured", "dns"},
			{in(podIP, 8081, direct), "exempt", "inbound_port"},
			{out(app, external, 8082, direct), "exempt", "outbound_port"},
			{out(app, excluded, 80, direct), "exempt", "range"},
			{out(lab.Owner{UID: 1000, GID: 4711}, external, 80, direct), "exempt", "group"},
			{in(secondIP, 8080, direct), "exempt", "interface"},
			{out(app, secondPeer, 80, direct), "exempt", "interface"},
			{out(app, localhost, 8080, direct), "own", "loopback"},
			{out(app, podIP, 8080, direct), "own", "loopback"},
			{out(proxy, external, 80, direct), "own", "proxy"},
			{out(proxyGID, external, 80, direct), "own", "proxy"},
			{in(podIP, 15008, direct), "own", "proxy"},
			{udp(out(app, external, 80, direct)), "", ""},
		},
	},
	{
		scenario: scenario{name: "inclusions", annotations: map[string]string{
			"includeInboundPorts": "8080", "includeOutboundIPRanges": included[ipv4] + "/32," + included[ipv6] + "/128",
		}},
		paths: []met{
			{in(podIP, 8080, inbound), "captured", "inbound"},
			{in(podIP, 9000, direct), "exempt", "not_included"},
			{out(app, included, 80, outbound), "captured", "outbound"},
			{out(app, external, 80, direct), "exempt", "not_included"},
			{out(proxy, external, 80, direct), "own", "proxy"},
		},
	},
	{
		scenario: scenario{name: "groups", settings: func(s *config.Settings) { s.Mesh.OutboundOwnerGroups = []uint32{4711} }},
		paths: []met{
			{out(lab.Owner{UID: 1000, GID: 4711}, external, 80, outbound), "captured", "outbound"},
			{out(app, external, 80, direct), "exempt", "not_included"},
		},
	},
	{
		scenario: scenario{name: "fence", annotations: map[string]string{
			"excludeOutboundPorts": "8082", "includeOutboundIPRanges": included[ipv4] + "/32," + included[ipv6] + "/128",
		}},
		fenced: true,
		paths: []met{
			{in(podIP, 8080, inbound), "captured", "inbound"},
			{out(app, included, 80, outbound), "captured", "outbound"},
			{out(app, external, 8082, direct), "exempt", "outbound_port"},
			{out(app, external, 80, refused), "fenced", "outbound"},
			{udp(out(app, external, 8080, refused)), "fenced", "outbound"},
			{out(proxy, external, 80, direct), "own", "proxy"},
		},
	},
	{
		scenario: scenario{name: "IPv6 is not captured", env: map[string]string{"ISTIO_DUAL_STACK": "false"}},
		paths: []met{
			{out(app, onlyIPv6(external), 80, direct), "exempt", "ipv6"},
			{in(onlyIPv6(podIP), 8080, direct), "exempt", "ipv6"},
			{out(app, onlyIPv4(external), 80, outbound), "captured", "outbound"},
		},
	},
	{
		scenario:  scenario{name: "no IPv6 address", env: map[string]string{"ISTIO_DUAL_STACK": "false"}},
		addresses: podAddresses()[:1],
		paths: []met{
			{out(app, onlyIPv6(external), 80, refused), "refused", "outbound"},
			{in(onlyIPv6(podIP), 8080, dropped), "refused", "inbound"},
			{out(app, onlyIPv6(localhost), 8080, direct), "", ""},
			{out(app, onlyIPv4(external), 80, outbound), "captured", "outbound"},
		},
	},
}

// TestOutcomes connects several times by each path, and reads as many connections with its
// outcome, and none with another one. Queries over TCP and UDP are counted alike.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"REDIRECT", "TPROXY"} {
		for _, s := range everyOutcome {
			t.Run(mode+", "+s.name, func(t *testing.T) {
				t.Parallel()
				env := map[string]string{"ISTIO_DUAL_STACK": "true"}
				maps.Copy(env, s.env)
				pod := injected(spelled(s.annotations), env)
				if s.fenced {
					pod = fence(pod)
				}
				pod.Annotations["sidecar.istio.io/interceptionMode"] = mode
				settings := config.DefaultSettings()
				if s.settings != nil {
					s.settings(&settings)
				}
				if s.addresses == nil {
					s.addresses = podAddresses()
				}
				decision, err := lab.Decide(pod, settings, s.addresses...)
				lab.Check(t, err)
				s.expect(t, capture.Rules(decision.Intent))
			})
		}
	}
}

func (s outcomes) expect(t *testing.T, rs capture.Ruleset) {
	const times = 3
	var probes []probe
	for _, path := range s.paths {
		probes = append(probes, path.probe)
	}
	w := newProbeWorld(t, ports(probes), istioMesh) // of its own: no packet of another case arrives late
	netns := w.capture(t, config.NFTables, rs)
	for _, path := range s.paths {
		for _, f := range bothFamilies {
			want := netns.outcomes(rs)
			if of := (trace.Outcome{Decision: path.decision, Reason: path.reason}); path.to[f] != "" && of.Decision != "" {
				want[of] += times
			}
			for range times {
				w.probe(t, path.probe, f)
			}
			if diff := cmp.Diff(want, netns.outcomes(rs)); diff != "" {
				t.Errorf("%s %+v: -want +got\n%s", f, path, diff)
			}
		}
	}
}

// outcomes returns the connections by outcome, without those of which there are none.
func (n namespace) outcomes(rs capture.Ruleset) map[trace.Outcome]int64 {
	n.t.Helper()
	o, err := kernel.Observe(n.t.Context(), n.Namespace, kernel.Question{})
	lab.Check(n.t, err)
	lab.Check(n.t, o.CountersFault)
	found := map[trace.Outcome]int64{}
	for _, m := range trace.Meters(rs) {
		count := int64(o.Counters.Of(m))
		if m.Negative {
			count = -count
		}
		found[m.Of] += count
	}
	maps.DeleteFunc(found, func(_ trace.Outcome, count int64) bool { return count == 0 })
	return found
}
