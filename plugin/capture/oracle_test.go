// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
)

var oracleRanges = []string{
	"*", "*", "", "10.0.0.0/8", "10.0.0.0/8,10.1.0.0/16,203.0.113.0/24", "0.0.0.0/0,::/0", "127.0.0.0/8",
	"127.1.2.3/32,10.0.0.0/8", "::1/128", "2001:db8::/32,10.2.0.0/16", "0.0.0.0/0,127.0.0.0/8",
}

func randomIstio(r *rand.Rand) istio {
	interfaces := []string{"", "", "eth1", "eth1,eth2", "lo"}
	return istio{
		includeInbound: pick(r, []string{"*", "*", "", "80", "80,443,15008,15020"}), excludeInbound: pick(r, []string{"", "80", "80,8080,15020"}),
		includeOutbound: pick(r, []string{"", "", "80,15020,15008"}), excludeOutbound: pick(r, []string{"", "15020", "443,3306,15008", "53,443"}),
		includeRanges: pick(r, oracleRanges), excludeRanges: pick(r, oracleRanges[2:]),
		excludeInterfaces: pick(r, interfaces), reroute: pick(r, interfaces),
		onlyGroups: pick(r, []string{"", "", "202", "0,202,1337"}), exceptGroups: pick(r, []string{"", "1", "1,202"}),
		loopback: pick(r, []string{"127.0.0.1/32", "127.0.0.0/8"}), dropInvalid: r.IntN(3) == 0, ipv6: r.IntN(2) == 0,
		tproxy: r.IntN(2) == 0, dns: r.IntN(2) == 0,
	}
}

// rules returns this package's rules for the same settings.
func (i istio) rules(t *testing.T) Ruleset {
	t.Helper()
	settings := config.DefaultSettings()
	settings.Mesh.LoopbackCIDR = netip.MustParsePrefix(i.loopback)
	settings.Mesh.OutboundOwnerGroups, settings.Mesh.OutboundOwnerGroupsExclude = numbers(i.onlyGroups), numbers(i.exceptGroups)
	changes := []func(*Pod){
		annotated(annotationIncludeInboundPorts, i.includeInbound), annotated(annotationExcludeInboundPorts, i.excludeInbound),
		annotated(annotationIncludeOutboundPorts, i.includeOutbound), annotated(annotationExcludeOutboundPorts, i.excludeOutbound),
		annotated(annotationIncludeOutboundRanges, i.includeRanges), annotated(annotationExcludeOutboundRanges, i.excludeRanges),
		annotated(annotationExcludeInterfaces, i.excludeInterfaces), annotated(annotationRerouteInterfaces, i.reroute),
		withEnv(envDropInvalid, fmt.Sprint(i.dropInvalid)), withEnv(envDualStack, fmt.Sprint(i.ipv6)),
		withEnv(envDNSCapture, fmt.Sprint(i.dns)),
	}
	if i.tproxy {
		changes = append(changes, annotated(annotationInterceptionMode, modeTProxy))
	}
	return Rules(intentOf(t, settings, dualStack, changes...))
}

func numbers(list string) (ids []uint32) {
	for _, word := range split(list) {
		id, _ := strconv.ParseUint(word, 10, 32)
		ids = append(ids, uint32(id))
	}
	return ids
}

// TestModelOfIstio compares the rules, for random settings and packets, with a model of
// those that istio-iptables writes. The model is written here: Istio itself is not run.
func TestModelOfIstio(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(15001, 15006))
	results := map[string]int{}
	for range 2000 {
		settings := randomIstio(r)
		tables := map[bool]istioTables{true: settings.tables(true), false: settings.tables(false)}
		rules := settings.rules(t)
		for range 300 {
			p := randomPacket(r)
			want := settings.result(p, tables)
			results[strings.Split(want, ",")[0]]++
			if got := rules.result(p); got != want {
				t.Fatalf("%s\nunder %+v:\ngot  %s\nwant %s, by\n%s", p, settings, got, want, rules)
			}
		}
	}
	if len(results) != 6 {
		t.Errorf("the packets had not all results: %v", results)
	}
}
