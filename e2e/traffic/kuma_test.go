// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// kumaPods is how many pods TestKuma draws.
const kumaPods = 8

// kumaAsked is what a pod asks of Kuma 3.
type kumaAsked struct {
	user                                                 int // 0 is Kuma's
	ipv4, dns, noInbound, noOutbound                     bool
	inboundOnly, inboundExcept, outboundOnly, outboundEx []int
	clients, servers                                     []string // that are excluded
	tuples                                               []kumaTuple
}

// kumaTuple is one of excludePortsForUIDs.
type kumaTuple struct{ protocols, ports, uids string }

var kumaScenarios = map[string]kumaAsked{
	"defaults":          {},
	"IPv4":              {ipv4: true, dns: true},
	"DNS":               {dns: true},
	"no inbound":        {noInbound: true},
	"no outbound":       {noOutbound: true, dns: true},
	"only some ports":   {inboundOnly: []int{80, 15020}, inboundExcept: []int{80}, outboundOnly: []int{53, 80}, outboundEx: []int{80}, dns: true},
	"excluded ports":    {inboundExcept: []int{53, 80}, outboundEx: []int{53, 443, 15020}, dns: true},
	"excluded clients":  {clients: []string{external[ipv4], "fd77::/64"}},
	"excluded servers":  {servers: []string{external[ipv4], "9.9.9.0/24", external[ipv6]}, dns: true},
	"excluded users":    {tuples: []kumaTuple{{"", "", "1000"}}, dns: true},
	"a range of users":  {tuples: []kumaTuple{{"udp", "53", "900-1000"}, {"tcp", "443-9000,15020", "1000-5677"}, {"tcp,udp", "80", "0"}}, dns: true},
	"a range of no one": {tuples: []kumaTuple{{"*", "*", "1001-5000"}}, dns: true},
	"everything": {
		user: 3000, dns: true, inboundExcept: []int{9000}, outboundEx: []int{443}, clients: []string{"10.78.0.0/24"}, servers: []string{excluded[ipv4], excluded[ipv6]},
		tuples: []kumaTuple{{"tcp", "*", "2000-2999"}, {"udp", "*", "0"}},
	},
}

// TestKuma has the system's nft capture pods in the order of Kuma's rules, sends the same packets
// in both namespaces, and wants the same decisions. Drawn pods and TestBesideKuma have the other
// backends.
func TestKuma(t *testing.T) {
	t.Parallel()
	lab.RequireRoot(t)
	for name, asked := range kumaScenarios {
		t.Run(name, func(t *testing.T) { t.Parallel(); asked.oracle(t, config.NFTables).compare(t) })
	}
	for n := range uint64(kumaPods) {
		t.Run(fmt.Sprintf("pod %d of seed %d", n, *seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(*seed, n))
			asked := randomKumaPod(r)
			asked.oracle(t, iptablesBackends[n%2]).compare(t)
		})
	}
}

// TestOracleKuma does the same by the engine of Kuma 1.8, which has neither users nor addresses that
// are excluded.
func TestOracleKuma(t *testing.T) {
	t.Parallel()
	lab.RequireRoot(t)
	program := lab.Part(t, "kuma-redirect")
	for name, asked := range kumaScenarios {
		if asked.tuples != nil || asked.clients != nil || asked.servers != nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := asked.oracle(t, config.NFTables)
			o.theirs = func(host *lab.Host) error { return asked.captureByProgram(host, program) }
			o.also = []difference{{
				why:    "Kuma 1.8 treats queries over TCP as those over UDP; Kuma 3 lets them pass, and the proxy's to its own pod are inbound",
				holds:  func(_ capture.Intent, p probe) bool { return asked.dns && p.port == 53 && !p.udp && !p.remote },
				allows: [][2]string{{direct, resolver}, {inbound, resolver}, {inbound, direct}},
				shown: func(in capture.Intent) bool {
					return in.CaptureDNS && in.OutboundPort != 0 && !excludes(in.ExcludeOutboundPorts, 53)
				},
			}}
			o.compare(t)
		})
	}
}

func (a kumaAsked) captureByProgram(host *lab.Host, program string) error {
	flow := func(off bool, port int, only, except []int) map[string]any {
		return map[string]any{"Enabled": !off, "Port": port, "PortIPv6": port, "IncludePorts": only, "ExcludePorts": except}
	}
	text, err := json.Marshal(map[string]any{
		"Owner": map[string]string{"UID": strconv.Itoa(cmp.Or(a.user, 5678))}, "IPv6": !a.ipv4,
		"Redirect": map[string]any{
			"Inbound": flow(a.noInbound, 15006, a.inboundOnly, a.inboundExcept), "Outbound": flow(a.noOutbound, 15001, a.outboundOnly, a.outboundEx),
			"DNS": map[string]any{"Enabled": a.dns, "CaptureAll": true, "Port": 15053, "ConntrackZoneSplit": true},
		},
	})
	if err != nil {
		return err
	}
	if err := command(host, "", program, string(text)); err != nil || a.ipv4 {
		return err
	}
	return command(host, "", "ip", "address", "replace", "::6/128", "dev", "lo")
}

// TestBesideKuma has both plugins capture a pod, in either order, as while one replaces the other.
func TestBesideKuma(t *testing.T) {
	t.Parallel()
	asked := kumaScenarios["everything"]
	besideEach(t, "kuma-cni", asked.capture, func(t *testing.T, backend config.Backend) *oracle { return asked.oracle(t, backend) })
}

func (a kumaAsked) oracle(t *testing.T, backend config.Backend) *oracle {
	t.Helper()
	in := intentOf(t, a.pod(), linkerdSettings())
	o := &oracle{intent: in, backend: backend, ports: []int{443, 9000}, theirs: a.capture}
	o.owners = append(proxyOwners(in), lab.Owner{UID: 2500, GID: 1000})
	o.mesh = config.Mesh{OutboundPort: 15001, InboundPort: 15006, DNSPort: 15053}
	return o
}

// pod is one as the injector of Kuma 3 makes it.
func (a kumaAsked) pod() *corev1.Pod {
	list := func(ports []int) string { return strings.ReplaceAll(fmt.Sprint(ports), " ", ", ") }
	var tuples []string
	for _, e := range a.tuples {
		tuples = append(tuples, strings.TrimLeft(e.protocols+":"+e.ports+":"+e.uids, ":"))
	}
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = "shop", "web"
	pod.Annotations = map[string]string{"kuma.io/sidecar-injected": "true", "traffic.kuma.io/transparent-proxy-config": fmt.Sprintf(`
kumaDPUser: "%s"
ipFamilyMode: %s
redirect:
  dns: {enabled: %v, captureAll: true}
  inbound:
    enabled: %v
    includePorts: %s
    excludePorts: %s
    excludePortsForIPs: %q
  outbound: {enabled: %v, includePorts: %s, excludePorts: %s, excludePortsForIPs: [%s], excludePortsForUIDs: ["%s"]}
`, map[bool]string{true: "", false: strconv.Itoa(a.user)}[a.user == 0], map[bool]string{true: "ipv4", false: "dualstack"}[a.ipv4], a.dns,
		!a.noInbound, list(a.inboundOnly), list(a.inboundExcept), strings.Join(a.clients, ","),
		!a.noOutbound, list(a.outboundOnly), list(a.outboundEx), `"`+strings.Join(a.servers, `","`)+`"`, strings.Join(tuples, `","`))}
	text := pod.Annotations["traffic.kuma.io/transparent-proxy-config"]
	pod.Annotations["traffic.kuma.io/transparent-proxy-config"] = strings.ReplaceAll(text, `[""]`, "[]")
	pod.Spec.Containers = []corev1.Container{{Name: "web"}, {Name: "kuma-sidecar"}}
	return pod
}

// capture captures a pod as kuma-cni of version 3 does: the rules, in their order, are those of
// its package transparentproxy.
func (a kumaAsked) capture(host *lab.Host) error {
	if a.user == 0 {
		a.user = 5678
	}
	var before, out, in []string
	add := func(list *[]string, format string, args ...any) { *list = append(*list, fmt.Sprintf(format, args...)) }
	words := func(address string) string {
		if strings.Contains(address, ":") {
			return "ip6"
		}
		return "ip"
	}
	if a.ipv4 {
		before = []string{"meta nfproto ipv6 return"}
	}
	for _, e := range a.tuples {
		for _, protocol := range []string{"tcp", "udp"} {
			ports := "1-65535"
			if e.ports != "" && e.ports != "*" {
				ports = "{ " + e.ports + " }"
			}
			if strings.Contains("tcp,udp", e.protocols) && !strings.Contains(e.protocols, protocol) && e.protocols != "" {
				continue
			}
			add(&out, "%s dport %s meta skuid %s return", protocol, ports, e.uids)
		}
	}
	for _, address := range a.servers {
		add(&out, "%s daddr %s return", words(address), address)
	}
	if a.dns {
		add(&out, "udp dport 53 meta skuid %d return", a.user)
		add(&out, "udp dport 53 redirect to :15053")
		add(&out, "tcp dport 53 meta skuid != %d return", a.user)
	}
	add(&out, "meta l4proto != tcp return")
	if a.noOutbound {
		add(&out, "return")
	}
	if len(a.outboundOnly) == 0 {
		for _, port := range a.outboundEx {
			add(&out, "tcp dport %d return", port)
		}
	}
	for _, f := range []struct{ nfproto, ip, source, localhost string }{{"ipv4", "ip", "127.0.0.6", "127.0.0.1"}, {"ipv6", "ip6", "::6", "::1"}} {
		add(&out, "%s saddr %s oif lo return", f.ip, f.source)
		add(&out, "oif lo %s daddr != %s meta skuid %d tcp dport 0-65535 redirect to :15006", f.ip, f.localhost, a.user)
		add(&out, "meta nfproto %s oif lo meta skuid != %d return", f.nfproto, a.user)
		add(&out, "meta nfproto %s meta skuid %d return", f.nfproto, a.user)
		add(&out, "%s daddr %s return", f.ip, f.localhost)
	}
	add(&in, "meta l4proto != tcp return")
	if a.noInbound {
		add(&in, "return")
	}
	for _, address := range a.clients {
		add(&in, "%s saddr %s return", words(address), address)
	}
	for _, d := range []struct {
		rules        *[]string
		only, except []int
		port         int
	}{{&out, a.outboundOnly, nil, 15001}, {&in, a.inboundOnly, a.inboundExcept, 15006}} {
		for _, port := range d.only {
			add(d.rules, "tcp dport %d redirect to :%d", port, d.port)
		}
		if len(d.only) > 0 {
			continue
		}
		for _, port := range d.except {
			add(d.rules, "tcp dport %d return", port)
		}
		add(d.rules, "meta l4proto tcp redirect to :%d", d.port)
	}
	var script strings.Builder
	chain := func(name, kind string, rules ...string) {
		fmt.Fprintf(&script, "chain %s { type %s\n%s\n}\n", name, kind, strings.Join(rules, "\n"))
	}
	script.WriteString("table inet kuma {\n")
	chain("OUTPUT", "nat hook output priority -100", append(before, out...)...)
	chain("PREROUTING", "nat hook prerouting priority -100", append(before, in...)...)
	if a.dns {
		chain("ZONES", "filter hook output priority -300", append(before, fmt.Sprintf("udp dport 53 meta skuid != %d ct original zone set 2", a.user))...)
	}
	script.WriteString("}\n")
	if err := command(host, script.String(), "nft", "-f", "-"); err != nil || a.ipv4 {
		return err
	}
	return command(host, "", "ip", "address", "replace", "::6/128", "dev", "lo")
}

func randomKumaPod(r *rand.Rand) kumaAsked {
	ports := func() (list []int) {
		for range r.IntN(2) * r.IntN(20) { // more than iptables takes into one rule
			list = append(list, pick(r, 53, 80, 443, 9000, 15008, 15020, 1+r.IntN(60_000)))
		}
		return list
	}
	addresses := func(some ...string) (list []string) {
		for _, address := range some {
			if r.IntN(5) == 0 {
				list = append(list, address)
			}
		}
		return list
	}
	a := kumaAsked{
		user: pick(r, 0, 3000), ipv4: r.IntN(4) == 0, dns: r.IntN(3) > 0, noInbound: r.IntN(6) == 0, noOutbound: r.IntN(6) == 0,
		inboundOnly: ports(), inboundExcept: ports(), outboundEx: ports(),
		clients: addresses("10.77.0.0/24", "fd77::/64", "10.78.0.1", "fd78::/16"), servers: addresses("10.77.0.0/24", "fd77::/64", "9.9.9.9", "127.0.0.0/8", "::1"),
	}
	if r.IntN(3) == 0 {
		a.outboundOnly = ports()
	}
	for range r.IntN(4) {
		first := pick(r, 0, 900, 1000, 1337, 2400, 5678)
		a.tuples = append(a.tuples, kumaTuple{
			pick(r, "tcp", "udp", "tcp,udp", "*"), pick(r, "*", "53", "80", "443,9000", "50-100,15020"),
			pick(r, strconv.Itoa(first), fmt.Sprintf("%d-%d", first, first+r.IntN(400))),
		})
	}
	return a
}
