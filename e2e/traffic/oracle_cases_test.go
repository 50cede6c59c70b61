// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// istioCase is one of istio-iptables' own test cases, as a pod and settings of ours.
// Annotations that it does not list are empty.
type istioCase struct {
	annotations map[string]string
	env         map[string]string
	settings    func(*config.Mesh)
	ports       []int
	owners      []lab.Owner
	to          []dst
}

var (
	ipv6Too = map[string]string{"ISTIO_DUAL_STACK": "true"}
	dnsToo  = map[string]string{"ISTIO_META_DNS_CAPTURE": "true"}
	dnsIPv6 = map[string]string{"ISTIO_META_DNS_CAPTURE": "true", "ISTIO_DUAL_STACK": "true"}

	inResolvConf = onlyIPv4(dst{"127.0.0.53"})
	ownersOf31   = []lab.Owner{{UID: 3, GID: 1}, {UID: 3, GID: 1000}, {UID: 1000, GID: 1}}
	ownersOfAll  = []lab.Owner{{UID: 1000, GID: 5}, {UID: 1000, GID: 202}, {UID: 1000, GID: 888}}
)

func proxyIs31(m *config.Mesh) { m.ProxyUID, m.ProxyGID = 3, 1 }

// istioCases are all of them, by the names of their golden files, which hold the rules
// that Istio's package makes of each. Two differ in what can be requested: the second of
// two uids or gids has no equivalent here, and DNS capture without a known server, which
// Istio turns off, is off.
var istioCases = map[string]istioCase{
	"empty":                    {},
	"ipv6-empty-inbound-ports": {env: ipv6Too},
	"inbound-ports-include":    {annotations: map[string]string{"includeInboundPorts": "32000,31000"}, ports: []int{31000, 32000}},
	"inbound-ports-tproxy":     {annotations: tproxy(map[string]string{"includeInboundPorts": "32000,31000"}), ports: []int{31000, 32000}},
	"inbound-ports-wildcard":   {annotations: map[string]string{"includeInboundPorts": "*"}},
	"inbound-ports-wildcard-tproxy": {
		annotations: tproxy(map[string]string{"includeInboundPorts": "*"}),
	},
	"ipv6-inbound-ports":     {annotations: map[string]string{"includeInboundPorts": "4000,5000"}, env: ipv6Too, ports: []int{4000, 5000}},
	"outbound-ports-include": {annotations: map[string]string{"includeOutboundPorts": "32000,31000"}, ports: []int{31000, 32000}},
	"ipv6-outbound-ports":    {annotations: map[string]string{"includeOutboundPorts": "32000,31000"}, env: ipv6Too, ports: []int{31000, 32000}},
	"ipnets":                 {annotations: map[string]string{"includeOutboundIPRanges": "10.0.0.0/8"}},
	"kube-virt-interfaces":   {annotations: map[string]string{"kubevirtInterfaces": "net1,eth2", "includeOutboundIPRanges": "*"}},
	"ipnets-with-kube-virt-interfaces": {
		annotations: map[string]string{"kubevirtInterfaces": "net1,eth2", "includeOutboundIPRanges": "10.0.0.0/8"},
	},
	"ipv6-virt-interfaces": {
		annotations: map[string]string{"includeInboundPorts": "4000,5000", "kubevirtInterfaces": "eth0,net1"},
		env:         ipv6Too, ports: []int{4000, 5000},
	},
	"ipv6-ipnets": {
		annotations: map[string]string{
			"includeInboundPorts": "4000,5000", "excludeInboundPorts": "6000,7000", "kubevirtInterfaces": "eth0,net1",
			"includeOutboundIPRanges": "2001:db8::/32", "excludeOutboundIPRanges": "2001:db8::/32",
		},
		env: ipv6Too, ports: []int{4000, 5000, 6000, 7000},
	},
	"ipv6-uid-gid": {
		annotations: map[string]string{
			"includeInboundPorts": "4000,5000", "excludeInboundPorts": "6000,7000", "kubevirtInterfaces": "eth0,net1",
			"includeOutboundIPRanges": "2001:db8::/32", "excludeOutboundIPRanges": "2001:db8::/32",
		},
		env: ipv6Too, ports: []int{4000, 5000, 6000, 7000}, settings: proxyIs31, owners: ownersOf31,
	},
	"ip-range": {
		annotations: map[string]string{"includeOutboundIPRanges": "9.9.0.0/16", "excludeOutboundIPRanges": "1.1.0.0/16"},
		env:         dnsToo, settings: proxyIs31, owners: ownersOf31, to: []dst{inResolvConf},
	},
	"loopback-outbound-iprange": {
		annotations: map[string]string{"includeOutboundIPRanges": "127.1.2.3/32"},
		env:         dnsToo, settings: proxyIs31, owners: ownersOf31, to: []dst{inResolvConf, onlyIPv4(dst{"127.1.2.3"})},
	},
	"tproxy": {
		annotations: tproxy(map[string]string{
			"includeInboundPorts": "*", "includeOutboundIPRanges": "9.9.0.0/16", "excludeOutboundIPRanges": "1.1.0.0/16", "excludeInterfaces": "net1",
		}),
		env: dnsIPv6, to: []dst{inResolvConf},
	},
	"dns-uid-gid":                   {env: dnsIPv6, settings: proxyIs31, owners: ownersOf31, to: []dst{inResolvConf}},
	"ipv6-dns-uid-gid":              {env: ipv6Too, settings: proxyIs31, owners: ownersOf31},
	"outbound-owner-groups":         {settings: func(m *config.Mesh) { m.OutboundOwnerGroups = []uint32{5, 202} }, owners: ownersOfAll},
	"outbound-owner-groups-exclude": {settings: func(m *config.Mesh) { m.OutboundOwnerGroupsExclude = []uint32{888, 5} }, owners: ownersOfAll},
	"ipv6-dns-outbound-owner-groups": {
		env: ipv6Too, settings: func(m *config.Mesh) { m.OutboundOwnerGroups = []uint32{5, 202} }, owners: ownersOfAll,
	},
	"ipv6-dns-outbound-owner-groups-exclude": {
		env: ipv6Too, settings: func(m *config.Mesh) { m.OutboundOwnerGroupsExclude = []uint32{888, 5} }, owners: ownersOfAll,
	},
	"basic-exclude-nic":       {annotations: map[string]string{"excludeInterfaces": "net1"}},
	"drop-invalid":            {env: map[string]string{"INVALID_DROP": "true"}},
	"host-ipv4-loopback-cidr": {settings: func(m *config.Mesh) { m.LoopbackCIDR = netip.MustParsePrefix("127.0.0.0/8") }},
}

// packageDifferences are those from Istio's package, where its plugin agrees with ours.
var packageDifferences = []difference{
	{
		why: "the plugin excludes inbound ports 15020, 15021 and 15090 by itself",
		holds: func(in capture.Intent, p probe) bool {
			return in.InboundPorts.All && excludes(in.ExcludeInboundPorts, p.port) && slices.Contains([]int{15020, 15021, 15090}, p.port)
		},
		allows: [][2]string{{direct, inbound}},
		shown:  func(in capture.Intent) bool { return in.InboundPorts.All },
	},
	{
		why:    "the plugin captures queries to any server, the package those to resolv.conf's if it is told to",
		holds:  func(in capture.Intent, p probe) bool { return in.CaptureDNS && p.port == 53 && p.to != inResolvConf },
		allows: [][2]string{{resolver, direct}, {resolver, inbound}, {resolver, outbound}},
		shown:  func(in capture.Intent) bool { return in.CaptureDNS },
	},
}

// TestOracleIstiosCases applies the rules of each of istio-iptables' own test cases, and
// sends the same packets as through ours.
func TestOracleIstiosCases(t *testing.T) {
	t.Parallel()
	lab.RequireRoot(t)
	goldens := istioSources(t, "tools/istio-iptables/pkg/capture/testdata/*.golden")
	for name := range istioCases {
		if !slices.Contains(goldens, filepath.Join(filepath.Dir(goldens[0]), name+".golden")) {
			t.Errorf("Istio has no case %s", name)
		}
	}
	for _, golden := range goldens {
		name := strings.TrimSuffix(filepath.Base(golden), ".golden")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, found := istioCases[name]
			if !found {
				t.Fatalf("Istio has a case that is not here: %s", golden)
			}
			settings := config.DefaultSettings()
			if c.settings != nil {
				c.settings(&settings.Mesh)
			}
			intent := intentOf(t, c.pod(), settings)
			o := &oracle{intent: intent, mesh: settings.Mesh, ports: c.ports, owners: c.owners, to: c.to, also: packageDifferences}
			o.theirs = func(host *lab.Host) error { return applyGolden(host, golden, intent) }
			o.compare(t)
		})
	}
}
