// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// linkerdPods is how many pods TestLinkerd draws.
const linkerdPods = 12

// linkerdAsked is what a pod asks of Linkerd, in the form of linkerd2-proxy-init.
type linkerdAsked struct {
	skipInbound, skipOutbound, subnets []string
	uid, gid                           int
	ipv6                               bool
	controlPlane                       bool
}

// linkerdScenarios have each key alone, and all together.
var linkerdScenarios = map[string]linkerdAsked{
	"defaults":          {uid: 2102},
	"IPv6":              {uid: 2102, ipv6: true},
	"a gid":             {uid: 2102, gid: 2103, ipv6: true},
	"inbound ports":     {uid: 2102, ipv6: true, skipInbound: []string{"80", "8000-9000"}},
	"outbound ports":    {uid: 2102, ipv6: true, skipOutbound: []string{"8000-9000"}},
	"subnets":           {uid: 2102, ipv6: true, subnets: []string{external[ipv4] + "/32", external[ipv6] + "/128"}},
	"the control plane": {uid: 2102, ipv6: true, controlPlane: true},
	"everything": {
		uid: 3000, gid: 3001, ipv6: true, skipInbound: []string{"15020-15021", "53"}, skipOutbound: []string{"80", "15000-15020"},
		subnets: []string{"10.78.0.0/24", "fd77::/64", "10.0.0.0/9"},
	},
}

// TestLinkerd has the system's iptables capture pods in the order of
// linkerd2-proxy-init's rules, sends the same packets in both namespaces, and wants the same
// decisions: of nftables for the scenarios, and of the other backends for pods that are drawn.
// TestBesideLinkerd has all backends decide about one pod.
func TestLinkerd(t *testing.T) {
	t.Parallel()
	lab.RequireRoot(t)
	for name, asked := range linkerdScenarios {
		t.Run(name, func(t *testing.T) { t.Parallel(); asked.compare(t, config.NFTables, asked.capture) })
	}
	for n := range uint64(linkerdPods) {
		t.Run(fmt.Sprintf("pod %d of seed %d", n, *seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(*seed, n))
			asked := randomLinkerdPod(r)
			asked.compare(t, iptablesBackends[n%2], asked.capture)
		})
	}
}

// TestOracleLinkerdInit does the same by linkerd2-proxy-init itself, in the version of 2022:
// it knows neither IPv6 nor a gid.
func TestOracleLinkerdInit(t *testing.T) {
	t.Parallel()
	lab.RequireRoot(t)
	program := lab.Part(t, "linkerd2-proxy-init")
	for name, asked := range linkerdScenarios {
		if !slices.Contains([]string{"defaults", "inbound ports", "outbound ports", "subnets"}, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked.ipv6 = false
			asked.subnets = slices.DeleteFunc(slices.Clone(asked.subnets), func(subnet string) bool { return strings.Contains(subnet, ":") })
			asked.compare(t, config.NFTables, func(host *lab.Host) error { return asked.captureByInit(host, program) })
		})
	}
}

// TestBesideLinkerd has both plugins capture a pod, in either order, as while one replaces
// the other: connections meet what linkerd-cni alone leads them to.
func TestBesideLinkerd(t *testing.T) {
	t.Parallel()
	asked := linkerdScenarios["everything"]
	besideEach(t, "linkerd-cni", asked.capture, func(t *testing.T, backend config.Backend) *oracle { return asked.oracle(t, backend, asked.capture) })
}

// besideEach has another program capture the pod of an oracle, too, before our plugin and after it,
// with each backend.
func besideEach(t *testing.T, program string, capture func(*lab.Host) error, oracleOf func(*testing.T, config.Backend) *oracle) {
	lab.RequireRoot(t)
	for _, backend := range backends {
		for name, first := range map[string]bool{"before": true, "after": false} {
			t.Run(fmt.Sprintf("%s %s %s", program, name, backend), func(t *testing.T) {
				t.Parallel()
				o := oracleOf(t, backend)
				o.beside, o.besideFirst = capture, first
				o.compare(t)
			})
		}
	}
}

func (a linkerdAsked) compare(t *testing.T, backend config.Backend, theirs func(*lab.Host) error) {
	t.Helper()
	a.oracle(t, backend, theirs).compare(t)
}

func (a linkerdAsked) oracle(t *testing.T, backend config.Backend, theirs func(*lab.Host) error) *oracle {
	t.Helper()
	o := &oracle{intent: intentOf(t, a.pod(), linkerdSettings()), backend: backend, ports: []int{443, 4567, 8080, 9000}, theirs: theirs}
	o.owners = proxyOwners(o.intent)
	o.mesh = linkerdMesh
	return o
}

// linkerdMesh are the ports of Linkerd's proxy.
var linkerdMesh = config.Mesh{OutboundPort: 4140, InboundPort: 4143, DNSPort: 15053}

func linkerdSettings() config.Settings {
	settings := config.DefaultSettings()
	settings.Meshes = config.Meshes()
	return settings
}

// pod is one as Linkerd's injector makes it.
func (a linkerdAsked) pod() *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = "shop", "web"
	pod.Annotations = map[string]string{
		"linkerd.io/proxy-version":              "edge-26.8.1",
		"config.linkerd.io/skip-inbound-ports":  strings.Join(a.skipInbound, ","),
		"config.linkerd.io/skip-outbound-ports": strings.Join(a.skipOutbound, ","),
		"config.linkerd.io/skip-subnets":        strings.Join(a.subnets, ", "),
	}
	if a.gid > 0 {
		pod.Annotations["config.linkerd.io/proxy-gid"] = strconv.Itoa(a.gid)
	}
	if a.controlPlane {
		pod.Labels = map[string]string{"linkerd.io/control-plane-component": "destination"}
	}
	inbound, outbound := "0.0.0.0:4143", "127.0.0.1:4140"
	if a.ipv6 {
		inbound, outbound = "[::]:4143", "127.0.0.1:4140,[::1]:4140"
	}
	pod.Spec.Containers = []corev1.Container{{Name: "web"}, {
		Name: "linkerd-proxy", SecurityContext: &corev1.SecurityContext{RunAsUser: new(int64(a.uid))},
		Env: []corev1.EnvVar{{Name: "LINKERD2_PROXY_INBOUND_LISTEN_ADDR", Value: inbound}, {Name: "LINKERD2_PROXY_OUTBOUND_LISTEN_ADDRS", Value: outbound}},
	}}
	return pod
}

// capture captures a pod as linkerd2-proxy-init of 2026-07-23 does: the rules, in their
// order, are those of its package iptables.
func (a linkerdAsked) capture(host *lab.Host) error {
	programs := map[string]string{"iptables-restore": ""}
	if a.ipv6 {
		programs["ip6tables-restore"] = ":"
	}
	for program, separator := range programs {
		rules := []string{"*nat", ":PROXY_INIT_REDIRECT - [0:0]", ":PROXY_INIT_OUTPUT - [0:0]"}
		add := func(format string, args ...any) { rules = append(rules, fmt.Sprintf(format, args...)) }
		for _, ports := range append([]string{"4190", "4191"}, a.skipInbound...) {
			add("-A PROXY_INIT_REDIRECT -p tcp --match multiport --dports %s -j RETURN", strings.ReplaceAll(ports, "-", ":"))
		}
		for _, subnet := range a.subnets {
			if strings.Contains(subnet, ":") == (separator == ":") {
				add("-A PROXY_INIT_REDIRECT -p all -j RETURN -s %s", subnet)
			}
		}
		add("-A PROXY_INIT_REDIRECT -p tcp -j REDIRECT --to-port 4143")
		add("-A PREROUTING -j PROXY_INIT_REDIRECT")
		add("-A PROXY_INIT_OUTPUT -m owner --uid-owner %d -j RETURN", a.uid)
		if a.gid > 0 {
			add("-A PROXY_INIT_OUTPUT -m owner --gid-owner %d -j RETURN", a.gid)
		}
		add("-A PROXY_INIT_OUTPUT -o lo -j RETURN")
		skipped := a.skipOutbound
		if a.controlPlane {
			skipped = append(slices.Clone(skipped), "443", "6443")
		}
		for _, ports := range skipped {
			add("-A PROXY_INIT_OUTPUT -p tcp --match multiport --dports %s -j RETURN", strings.ReplaceAll(ports, "-", ":"))
		}
		add("-A PROXY_INIT_OUTPUT -p tcp -j REDIRECT --to-port 4140")
		add("-A OUTPUT -j PROXY_INIT_OUTPUT")
		if err := command(host, strings.Join(append(rules, "COMMIT\n"), "\n"), program, "--noflush"); err != nil {
			return err
		}
	}
	return nil
}

// captureByInit captures a pod by the program, with Linkerd's defaults.
func (a linkerdAsked) captureByInit(host *lab.Host, program string) error {
	return command(host, "", program, "--incoming-proxy-port=4143", "--outgoing-proxy-port=4140", "--proxy-uid="+strconv.Itoa(a.uid),
		"--inbound-ports-to-ignore="+strings.Join(append([]string{"4190", "4191"}, a.skipInbound...), ","),
		"--outbound-ports-to-ignore="+strings.Join(a.skipOutbound, ","), "--subnets-to-ignore="+strings.Join(a.subnets, ","))
}

func randomLinkerdPod(r *rand.Rand) linkerdAsked {
	ports := func() (list []string) {
		for range r.IntN(3) * r.IntN(12) { // more than iptables takes into one rule
			first := pick(r, 53, 80, 443, 8080, 9000, 15020, r.IntN(60_000))
			list = append(list, pick(r, strconv.Itoa(first), fmt.Sprintf("%d-%d", first, first+r.IntN(500))))
		}
		return list
	}
	asked := linkerdAsked{
		skipInbound: ports(), skipOutbound: ports(), uid: pick(r, 2102, 3000), gid: pick(r, 0, 0, 3001), ipv6: r.IntN(3) > 0, controlPlane: r.IntN(4) == 0,
	}
	for _, subnet := range []string{"10.77.0.0/24", "fd77::/64", "10.78.0.1/32", "fd78::/16", "10.0.0.0/8"} {
		if r.IntN(4) == 0 {
			asked.subnets = append(asked.subnets, subnet)
		}
	}
	return asked
}

// TestLinkerdValidator does what linkerd-network-validator does: it listens at the proxy's
// outbound port, connects to an address of no host, and expects its own token back.
func TestLinkerdValidator(t *testing.T) {
	t.Parallel()
	validator := lab.Owner{UID: 65534, GID: 65534}
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		asked := linkerdAsked{uid: 2102, ipv6: true}
		w := newLinks(t)
		for _, at := range []string{"0.0.0.0:4140", "[::]:4140"} {
			server, err := w.pod.ServeProxy(validator, map[bool]string{true: "tcp4", false: "tcp6"}[at[0] == '0'], at, "the validator")
			lab.Check(t, err)
			t.Cleanup(func() { _ = server.Close() })
		}
		validates := func(to string) bool {
			answer, _ := w.pod.Ask(validator, "tcp", "", to)
			return answer.Server == "the validator"
		}
		targets := []string{"1.1.1.1:20001", net.JoinHostPort("fd00::1", "20001")}
		for _, to := range targets {
			if validates(to) {
				t.Errorf("without rules, %s leads to the validator", to)
			}
		}
		netns := open(t, w.pod, backend)
		lab.Check(t, netns.Apply(decide(t, asked.pod(), linkerdSettings())))
		for _, to := range targets {
			if !validates(to) {
				t.Errorf("with the rules, %s does not lead to the validator", to)
			}
		}
		lab.Check(t, netns.Remove())
		if validates(targets[0]) {
			t.Error("without rules again, the validator succeeds")
		}
	})
}
