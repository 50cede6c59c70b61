// SPDX-License-Identifier: Apache-2.0

package capture_test

import (
	"encoding/json"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// TestPolicyHoldsInBothPlaces expects of each rule of nat the same for the SYNs that nat
// does not decide about, with a refusal in the redirect's place, and of TPROXY's rules the
// same as of those of nat that count: for every golden case, and for a pod with each kind
// of exemption.
func TestPolicyHoldsInBothPlaces(t *testing.T) {
	t.Parallel()
	rulesets := map[string]capture.Ruleset{"every exemption": capture.Rules(everyExemption())}
	cases, _ := filepath.Glob("testdata/*/pod.yaml")
	for _, path := range cases {
		rulesets[filepath.Dir(path)] = rulesOf(t, filepath.Dir(path))
	}
	furtherChains := []string{"ISTIO_PROXY", "ISTIO_OWNER_GROUPS", "ISTIO_OUTPUT_DNS"}
	for name, rs := range rulesets {
		outbound := policyOf(t, rs, capture.NAT, append([]string{"ISTIO_OUTPUT"}, furtherChains...))
		if diff := cmp.Diff(outbound, policyOf(t, rs, capture.Filter, append([]string{"ISTIO_SYN"}, furtherChains...))); diff != "" {
			t.Errorf("%s, outbound: -nat +filter\n%s", name, diff)
		}
		if inbound := policyOf(t, rs, capture.NAT, []string{"ISTIO_INBOUND"}); len(inbound) > 0 {
			table, other := capture.Mangle, "ISTIO_SYN"
			if rs.LocalMark != 0 {
				other = "ISTIO_INBOUND" // TPROXY decides there, and nat counts
			} else if rs.HasFence() {
				table, other = capture.Filter, "ISTIO_FENCE_INPUT"
			}
			if diff := cmp.Diff(inbound, policyOf(t, rs, table, []string{other})); diff != "" {
				t.Errorf("%s, inbound: -nat +%s\n%s", name, table, diff)
			}
		}
	}
}

// everyExemption returns an Intent that fills every list.
func everyExemption() capture.Intent {
	ports, ids := []uint16{4711, 4712}, []uint32{4713, 4714}
	ranges := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/25"), netip.MustParsePrefix("2001:db8::/33")}
	return capture.Intent{
		Mesh: config.Istio,
		IPv6: capture.Captured, CaptureDNS: true, DropInvalid: true, ProxyUID: 1337, ProxyGID: 1338,
		OutboundPort: 15001, InboundPort: 15006, TunnelPort: 15008, DNSPort: 15053,
		LoopbackCIDR: netip.MustParsePrefix("127.0.0.0/8"),
		InboundPorts: capture.Everything[uint16](), ExcludeInboundPorts: capture.Ports(ports...),
		IncludeOutboundPorts: ports, ExcludeOutboundPorts: capture.Ports(ports...),
		OutboundRanges: capture.Everything[netip.Prefix](), ExcludeOutboundRanges: ranges,
		ExcludeInterfaces: []string{"net1"}, RerouteInterfaces: []string{"net2"}, ExcludeOwnerGroups: ids,
	}
}

// policyOf returns the rules of some chains, as JSON, from the first one that depends on
// no entry of conntrack. What captures a packet has the same action in each table. Rules
// that decide about no SYN, or that only IPv6 meets where it is refused, are left out.
func policyOf(t *testing.T, rs capture.Ruleset, table capture.Table, chains []string) (rules []string) {
	t.Helper()
	for _, chain := range rs.Chains {
		if chain.Table != table || !slices.Contains(chains, chain.Name) {
			continue
		}
		entry := slices.IndexFunc(chain.Rules, func(r capture.Rule) bool { return r.Match.Translated })
		for _, rule := range chain.Rules[entry+1:] {
			if strings.HasPrefix(rule.Match.Src.Name, "fence_allow_") || chain.Name == "ISTIO_FENCE_INPUT" && rule.Match.Protocol == "" {
				continue // of the fence alone
			}
			if rule.Why == "the proxy's inbound port" || rs.HasFence() && rule.Why == "rerouted interface, other range" {
				continue // nat leads such a packet to the port that it is sent to; the fence does not exempt what nat leaves
			}
			if rs.IPv6 == capture.Ignored && chain.Name == "ISTIO_FENCE_INPUT" {
				rule.Match.Family = "" // IPv6 enters no chain of nat
			}
			if rule.Match.Protocol == "" {
				rule.Match.Protocol = capture.TCP // as all packets that enter these chains, but for queries
			}
			if rule.Match.Protocol == capture.UDP || rs.IPv6 == capture.Refused && rule.Match.OnlyFamily() == capture.IPv6 {
				continue
			}
			if rs.LocalMark != 0 && chain.Name == "ISTIO_INBOUND" && (rule.Match.FromLo || rule.Match.Mark != 0 || rule.Match.In.Name == "reroute_interfaces") {
				continue
			}
			if slices.Contains([]string{
				"ISTIO_REDIRECT", "ISTIO_IN_REDIRECT", "ISTIO_REFUSE", "ISTIO_REFUSE_IN", "ISTIO_TPROXY", "ISTIO_IN_TPROXY", "ISTIO_FENCE",
			}, rule.Do.Chain) || rule.Do.Verdict == capture.Redirect || rule.Do.Verdict == capture.Translate {
				rule.Do = capture.Action{Verdict: "captures"}
			}
			text, err := json.Marshal(rule)
			if err != nil {
				t.Fatal(err)
			}
			rules = append(rules, string(text))
		}
	}
	return rules
}
