// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// TestProbeHasEveryExpression compares the rules of Probe with those of random Intents of each mesh: each
// kind of match, verdict, set and chain is among them, with TPROXY only where that is tried.
func TestProbeHasEveryExpression(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(30, 4))
	for _, mesh := range config.Meshes() {
		known := map[Feature]map[string]bool{}
		for _, f := range []Feature{NoFeature, TProxy, Fence} {
			known[f] = kinds(capture.Rules(fullIntent(mesh, f)))
		}
		for range 2000 {
			intent := randomIntent(random)
			intent.Mesh = mesh
			for kind := range kinds(capture.Rules(intent)) {
				if !known[NoFeature][kind] && !(intent.Transparent && known[TProxy][kind]) && !(intent.Fence != nil && known[Fence][kind]) {
					t.Errorf("Probe has no %s for %s, which this Intent needs: %+v", kind, mesh, intent)
					known[NoFeature][kind] = true
				}
			}
		}
	}
}

// kinds returns what a Ruleset needs of the kernel.
func kinds(rs capture.Ruleset) map[string]bool {
	found := map[string]bool{}
	for _, chain := range rs.Chains {
		found[fmt.Sprintf("chain of type %s in hook %s", chain.Type(), chain.Hook)] = true
		for _, rule := range chain.Rules {
			verdict := fmt.Sprintf("verdict %s in table %s", rule.Do.Verdict, chain.Table)
			if rule.Do.Verdict == capture.Drop { // the kernel has it without a module, in each table alike
				verdict = "verdict drop"
			}
			found[verdict] = true
			match := reflect.ValueOf(rule.Match)
			for i := range match.NumField() {
				field := match.Field(i)
				if field.IsZero() {
					continue
				}
				kind := "match " + match.Type().Field(i).Name
				if kind == "match Src" { // the kernel has it with Dst, in sets alike
					kind = "match Dst"
				}
				if _, isAddress := field.Interface().(capture.List[netip.Prefix]); isAddress {
					kind += " of " + string(rule.Match.OnlyFamily())
				}
				found[kind] = true
				if field.Kind() != reflect.Struct {
					continue
				}
				if values := field.FieldByName("Values"); values.IsValid() && values.Len() > 1 {
					found[kind+", in a set"] = true
				}
			}
		}
	}
	return found
}

func randomIntent(random *rand.Rand) capture.Intent {
	coin := func() bool { return random.IntN(2) == 0 }
	ports := func() (ports []uint16) {
		for i := range random.IntN(3) {
			ports = append(ports, uint16(80+i))
		}
		return ports
	}
	ids := func() (ids []uint32) {
		for i := range random.IntN(3) {
			ids = append(ids, uint32(7+i))
		}
		return ids
	}
	names := func() (names []string) {
		for i := range random.IntN(3) {
			names = append(names, fmt.Sprintf("eth%d", i+1))
		}
		return names
	}
	ranges := func() (ranges []netip.Prefix) {
		for range random.IntN(4) {
			text := []string{"10.%d.0.0/16", "2001:db8:%d::/48"}[random.IntN(2)]
			ranges = append(ranges, netip.MustParsePrefix(fmt.Sprintf(text, random.IntN(100))))
		}
		return ranges
	}
	exempt := func() (list []capture.Exempt) {
		for range random.IntN(3) {
			first := uint32(random.IntN(3))
			list = append(list, capture.Exempt{
				Protocol: capture.TCP, Ports: capture.Ports(ports()...), Ranges: ranges(),
				UIDs: &capture.IDRange{First: first, Last: first + uint32(random.IntN(2))},
			})
		}
		return list
	}
	translations := func() (list []capture.Translation) {
		for _, to := range []string{"127.0.0.1:8600", "[::1]:8600"}[:random.IntN(3)] {
			list = append(list, capture.Translation{To: netip.MustParseAddrPort(to)})
		}
		return list
	}
	openings := func() (list []capture.Opening) {
		for _, protocol := range []string{"tcp", "udp"} {
			o := config.Opening{Inbound: coin(), Protocol: protocol, First: 53, Last: uint16(53 + random.IntN(2))}
			list = append(list, capture.Opening{Opening: o, Ranges: ranges()})
		}
		return list
	}
	intent := capture.Intent{
		IPv6:        []capture.Treatment{capture.Ignored, capture.Captured, capture.Refused}[random.IntN(3)],
		Transparent: coin(), CaptureDNS: coin(), DropInvalid: coin(), CaptureLoopback: coin(),
		OutboundPort: 15001, InboundPort: 15006, TunnelPort: 15008, DNSPort: 15053, ProxyUID: 1337, ProxyGID: 1337,
		LoopbackCIDR: netip.MustParsePrefix("127.0.0.0/8"),
		InboundPorts: capture.Selection[uint16]{Only: ports()}, ExcludeInboundPorts: capture.Ports(ports()...),
		IncludeOutboundPorts: ports(), ExcludeOutboundPorts: capture.Ports(ports()...),
		OutboundRanges: capture.Selection[netip.Prefix]{Only: ranges()}, ExcludeOutboundRanges: ranges(),
		ExcludeInterfaces: names(), RerouteInterfaces: names(), OwnerGroups: ids(), ExcludeOwnerGroups: ids(), ExcludeInboundRanges: ranges(),
		Exempt: exempt(), Translations: translations(),
	}
	if coin() {
		intent.Fence = &capture.Fence{Openings: openings()}
	}
	if coin() {
		intent.InboundPorts = capture.Everything[uint16]()
	}
	if coin() {
		intent.OutboundRanges = capture.Everything[netip.Prefix]()
	}
	return intent
}
