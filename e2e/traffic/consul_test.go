// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// consulPods is how many pods TestConsul draws.
const consulPods = 8

// consulAsked is what a pod asks of Consul, with the names of consul/sdk.
type consulAsked struct {
	ConsulDNSIP                                                                  string `json:",omitempty"`
	ConsulDNSPort                                                                int    `json:",omitempty"`
	ProxyUserID                                                                  string
	ProxyInboundPort, ProxyOutboundPort                                          int
	ExcludeInboundPorts, ExcludeOutboundPorts, ExcludeOutboundCIDRs, ExcludeUIDs []string

	DualStack bool `json:"-"`
}

// consulInit is the user of Consul's init container, which is never captured.
var consulInit = lab.Owner{UID: 5996, GID: 5996}

// consulScenarios have each key alone, and all together.
var consulScenarios = map[string]consulAsked{
	"defaults":          {},
	"ports":             {ExcludeInboundPorts: []string{"80", "15020:15021", "60000:"}, ExcludeOutboundPorts: []string{"80", " 8000:9000"}, DualStack: true},
	"OpenShift's uids":  {ProxyUserID: "1000650000", ExcludeUIDs: []string{"1000650001", "0"}, DualStack: true},
	"CIDRs":             {ExcludeOutboundCIDRs: []string{excluded[ipv4], "9.9.9.0/24", "2001:db8:9::9"}, DualStack: true},
	"DNS":               {ConsulDNSPort: 8600},
	"DNS, dual stack":   {ConsulDNSPort: 8600, DualStack: true},
	"DNS at an address": {ConsulDNSIP: included[ipv4], ConsulDNSPort: 80},
	"DNS of all":        {ConsulDNSIP: included[ipv4]},
	"DNS of all, IPv6":  {ConsulDNSIP: included[ipv6], DualStack: true},
	"everything": {
		ConsulDNSIP: "::1", ConsulDNSPort: 8600, ProxyUserID: "3000", ProxyOutboundPort: 15101, ExcludeUIDs: []string{"1000", "5996"}, DualStack: true,
		ExcludeInboundPorts: []string{"15000-15020"}, ExcludeOutboundPorts: []string{"443"}, ExcludeOutboundCIDRs: []string{"10.78.0.0/24", "fd78::/64"},
	},
}

// TestConsul has the system's nft capture pods in the order of consul/sdk, sends the same packets
// in both namespaces, and wants the same decisions. Drawn pods and TestBesideConsul have the other
// backends.
func TestConsul(t *testing.T) {
	t.Parallel()
	lab.RequireRoot(t)
	for name, asked := range consulScenarios {
		if strings.HasPrefix(name, "DNS of all") {
			continue // answers that never come take long; see TestConsulQueries
		}
		t.Run(name, func(t *testing.T) { t.Parallel(); asked.compare(t, config.NFTables, asked.capture) })
	}
	for n := range uint64(consulPods) {
		t.Run(fmt.Sprintf("pod %d of seed %d", n, *seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(*seed, n))
			asked := randomConsulPod(r)
			asked.compare(t, iptablesBackends[n%2], asked.capture)
		})
	}
}

// TestOracleConsul does the same by consul/sdk itself.
func TestOracleConsul(t *testing.T) {
	t.Parallel()
	lab.RequireRoot(t)
	program := lab.Part(t, "consul-redirect")
	compare := func(name string, asked consulAsked, backend config.Backend) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked.compare(t, backend, func(host *lab.Host) error {
				return command(host, "", program, asked.config(), strconv.FormatBool(asked.DualStack))
			})
		})
	}
	for name, asked := range consulScenarios {
		compare(name, asked, config.NFTables)
	}
	for n := range uint64(consulPods) {
		r := rand.New(rand.NewPCG(*seed, 1000+n))
		compare(fmt.Sprintf("pod %d of seed %d", n, *seed), randomConsulPod(r), pick(r, backends...))
	}
}

// TestConsulQueries leads queries for an address of no host to a server that answers.
func TestConsulQueries(t *testing.T) {
	t.Parallel()
	nowhere := dst{"203.0.113.5", "2001:db8:99::5"}
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		w := newProbeWorld(t, []int{53}, istioMesh)
		for f, name := range map[family]string{ipv4: "DNS of all", ipv6: "DNS of all, IPv6"} {
			t.Run(name, func(t *testing.T) {
				rs := decide(t, consulScenarios[name].pod(), linkerdSettings())
				w.capture(t, backend, rs).expectSame(rs)
				for _, p := range concat(queries(app, nowhere, direct), queries(rootUser, nowhere, direct)) {
					w.probe(t, p, f)
				}
			})
		}
	})
}

// TestConsulRepeatedQueries sends SYNs again, to the server to which queries are led, and to another address.
func TestConsulRepeatedQueries(t *testing.T) {
	t.Parallel()
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		w := newWorld(t, []int{53}, istioMesh)
		lab.Check(t, open(t, w.pod, backend).Apply(decide(t, consulScenarios["DNS of all"].pod(), linkerdSettings())))
		w.pod.Load(t, repeating)
		w.peer.Load(t, repeating)
		for i, to := range []dst{included, external} {
			for _, first := range lost(t) {
				w.repeat(t, "DNS of all", out(app, to, 53, direct), ipv4, uint16(first+i))
			}
		}
	})
}

// TestBesideConsul has both plugins capture a pod, in either order, as while one replaces the
// other.
func TestBesideConsul(t *testing.T) {
	t.Parallel()
	asked := consulScenarios["everything"]
	besideEach(t, "consul-cni", asked.capture, func(t *testing.T, backend config.Backend) *oracle { return asked.oracle(t, backend, asked.capture) })
}

func (a consulAsked) compare(t *testing.T, backend config.Backend, theirs func(*lab.Host) error) {
	t.Helper()
	a.oracle(t, backend, theirs).compare(t)
}

func (a consulAsked) oracle(t *testing.T, backend config.Backend, theirs func(*lab.Host) error) *oracle {
	t.Helper()
	in := intentOf(t, a.pod(), linkerdSettings())
	o := &oracle{intent: in, backend: backend, ports: []int{443, 9000, 60000}, theirs: theirs}
	o.owners = append(proxyOwners(in), consulInit)
	o.mesh = config.Mesh{OutboundPort: in.OutboundPort, InboundPort: in.InboundPort, DNSPort: 8600}
	return o
}

// config is the annotation as Consul's injector writes it.
func (a consulAsked) config() string {
	if a.ProxyInboundPort = cmp.Or(a.ProxyInboundPort, 20000); a.ProxyUserID == "" {
		a.ProxyUserID, a.ExcludeUIDs = "5995", []string{"5996"}
	}
	text, err := json.Marshal(a)
	if err != nil {
		panic(err)
	}
	return strings.TrimSuffix(string(text), "}") + `,"NetNS":"","IptablesProvider":null}`
}

// pod is one as Consul's injector makes it.
func (a consulAsked) pod() *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = "shop", "web"
	pod.Annotations = map[string]string{
		"consul.hashicorp.com/connect-inject-status": "injected", "consul.hashicorp.com/transparent-proxy-status": "enabled",
		"consul.hashicorp.com/redirect-traffic-config": a.config(), "consul.hashicorp.com/dual-stack": strconv.FormatBool(a.DualStack),
	}
	pod.Spec.InitContainers = []corev1.Container{{Name: "consul-connect-inject-init", SecurityContext: &corev1.SecurityContext{
		RunAsUser: new(int64(5996)), AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}}}
	pod.Spec.Containers = []corev1.Container{{Name: "web"}, {Name: "consul-dataplane"}}
	return pod
}

// capture captures a pod as version 0.19 of consul/sdk does.
func (a consulAsked) capture(host *lab.Host) error {
	text := a.config()
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return err
	}
	if a.ProxyOutboundPort == 0 {
		a.ProxyOutboundPort = 15001
	}
	var before, dns, inbound, outbound []string
	if !a.DualStack {
		before = []string{"meta nfproto ipv6 return"}
	}
	words := func(address string) string {
		if strings.Contains(address, ":") {
			return "ip6"
		}
		return "ip"
	}
	servers := []string{"127.0.0.1", "::1"}
	switch {
	case a.ConsulDNSIP != "":
		servers = []string{a.ConsulDNSIP}
	case !a.DualStack:
		servers = servers[:1]
	}
	for _, server := range servers {
		for _, protocol := range []string{"udp", "tcp"} {
			switch {
			case a.ConsulDNSPort != 0:
				at := netip.AddrPortFrom(netip.MustParseAddr(server), uint16(a.ConsulDNSPort))
				dns = append(dns, fmt.Sprintf("%s daddr %s %s dport 53 dnat to %s", words(server), server, protocol, at))
			case a.ConsulDNSIP != "":
				dns = append(dns, fmt.Sprintf("%s dport 53 dnat %s to %s", protocol, words(server), server))
			}
		}
	}
	ports := func(list []string) (rules []string) {
		for _, text := range list {
			if text = strings.ReplaceAll(strings.TrimSpace(text), ":", "-"); strings.HasSuffix(text, "-") {
				text += "65535"
			}
			rules = append(rules, "tcp dport "+text+" return")
		}
		return rules
	}
	for _, uid := range a.ExcludeUIDs {
		outbound = append(outbound, "meta l4proto tcp skuid "+uid+" return")
	}
	for _, cidr := range a.ExcludeOutboundCIDRs {
		outbound = append(outbound, "meta l4proto tcp "+words(cidr)+" daddr "+cidr+" return")
	}
	outbound = append(append(outbound, ports(a.ExcludeOutboundPorts)...), "skuid "+a.ProxyUserID+" return", "ip daddr 127.0.0.1 return",
		"ip6 daddr ::1 return", fmt.Sprintf("meta l4proto tcp redirect to :%d", a.ProxyOutboundPort))
	inbound = append(ports(a.ExcludeInboundPorts), fmt.Sprintf("meta l4proto tcp redirect to :%d", a.ProxyInboundPort))
	var script strings.Builder
	for hook, rules := range map[string][][]string{"output": {before, dns, outbound}, "prerouting": {before, inbound}} {
		fmt.Fprintf(&script, "table inet consul_tproxy {\nchain %s { type nat hook %s priority -100\n", hook, hook)
		for _, list := range rules {
			script.WriteString(strings.Join(append(list, ""), "\n"))
		}
		script.WriteString("}\n}\n")
	}
	return command(host, script.String(), "nft", "-f", "-")
}

func randomConsulPod(r *rand.Rand) consulAsked {
	ports := func() (list []string) {
		for range r.IntN(3) * r.IntN(12) {
			first := pick(r, 53, 80, 443, 8080, 9000, 15020, r.IntN(60_000))
			list = append(list, pick(r, strconv.Itoa(first), fmt.Sprintf("%d:%d", first, first+r.IntN(500))))
		}
		return list
	}
	a := consulAsked{ExcludeInboundPorts: ports(), ExcludeOutboundPorts: ports(), DualStack: r.IntN(3) > 0, ConsulDNSPort: pick(r, 0, 80, 8600)}
	if r.IntN(2) == 0 {
		a.ProxyUserID, a.ExcludeUIDs = pick(r, "3000", "1000650000"), []string{pick(r, "1000", "0", "5996"), "5996"}
	}
	if f := ipv4; r.IntN(2) == 0 {
		if a.DualStack {
			f = ipv6
		}
		a.ConsulDNSIP = pick(r, localhost, included, podIP)[f]
	}
	for _, cidr := range []string{"10.77.0.0/24", "fd77::/64", "10.78.0.1", "fd78::/16", "127.0.0.0/8"} {
		if r.IntN(4) == 0 {
			a.ExcludeOutboundCIDRs = append(a.ExcludeOutboundCIDRs, cidr)
		}
	}
	return a
}
