// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/guard"
	"github.com/capture-cni/capture-cni/install/trace"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
)

var (
	toPeer = trace.Packet{Protocol: capture.TCP, To: netip.MustParseAddrPort(peerAddress + ":80"), Owner: &trace.Owner{UID: 1000, GID: 1000}}
	toPod  = trace.Packet{Protocol: capture.TCP, To: netip.MustParseAddrPort(podAddress + ":8080"), Inbound: true}
	toSelf = trace.Packet{Protocol: capture.TCP, To: netip.MustParseAddrPort(podAddress + ":8080"), Owner: &trace.Owner{UID: 1337, GID: 1337}}
)

const doubt = "can't tell"

// TestTraces finds the rule that decides in a running pod, with the interface and the
// source that the pod's routes choose, and changes nothing.
func TestTraces(t *testing.T) {
	t.Parallel()
	n := newNode()
	p := n.run(t, "web")
	p.capture(t, nil)
	before := p.list(t)
	elsewhere, marked := toPod, toPeer
	elsewhere.To, marked.Mark = netip.MustParseAddrPort("198.51.100.1:80"), 1337
	for _, tt := range []struct {
		packet trace.Packet
		want   []string
	}{
		{toPeer, []string{"TCP from " + podAddress + " to " + peerAddress + ":80, sent by uid 1000 and gid 1000, leaving by eth0\n", "redirected to port 15001\n", "of chain nat_ISTIO_REDIRECT in table inet capture-cni: to the proxy's outbound port\n"}},
		{toPod, []string{"arriving by eth0\n", "redirected to port 15006\n", "in table inet capture-cni: to the proxy's inbound port\n"}},
		{toSelf, []string{"from " + podAddress, "leaving by lo\n", "redirected to port 15006\n"}},
	} {
		out := n.trace(t, tt.packet)
		for _, want := range append(tt.want, "pod          shop/web, UID uid-of-web\n") {
			if !strings.Contains(out, want) {
				t.Errorf("it does not say %q:\n%s", want, out)
			}
		}
		if strings.Contains(out, doubt) {
			t.Errorf("it doubts:\n%s", out)
		}
	}
	if after := p.list(t); after != before {
		t.Errorf("it changed the rules:\n%s", after)
	}
	g := n.newGuard(t, options{policy: guard.ReportOnly})
	if _, err := g.Trace(t.Context(), "shop", "web", elsewhere); err == nil || !strings.Contains(err.Error(), "198.51.100.1 is no address of the pod") {
		t.Errorf("an inbound packet to another host: %v", err)
	}
	if _, err := g.Trace(t.Context(), "shop", "none", toPeer); !errors.Is(err, guard.ErrNotHere) {
		t.Errorf("a pod that is not there: %v", err)
	}
	p.execute(t, "ip", "rule", "add", "fwmark", "1337", "lookup", "133")
	p.execute(t, "ip", "route", "add", "local", "default", "dev", "lo", "table", "133")
	if out := n.trace(t, marked); !strings.Contains(out, "leaving by lo, with mark 1337\n") {
		t.Errorf("a marked packet:\n%s", out)
	}
}

// TestTraceDoubts names each chain of another program that the packet meets before our
// rules, and none that it does not meet.
func TestTraceDoubts(t *testing.T) {
	t.Parallel()
	n := newNode()
	p := n.run(t, "web")
	p.capture(t, nil)
	for _, nft := range []string{
		"table inet front { chain out { type filter hook output priority -301; counter; } }",
		"table ip equal { chain OUTPUT { type nat hook output priority -101; counter; } }",
		"table inet drops { chain out { type filter hook output priority -301; policy drop; } }",
		"table ip raw { chain in { type filter hook prerouting priority raw; counter; } }",
		`table netdev early { chain in { type filter hook ingress device "eth0" priority 0; counter; } }`,
		"table ip behind { chain OUTPUT { type nat hook output priority -99; counter; } }",
		"table ip6 other { chain out { type filter hook output priority raw; counter; } }",
		"table inet empty { chain out { type filter hook output priority raw; }\nchain more { counter; } }",
	} {
		p.load(t, nft)
	}
	arriving := []string{
		`chain "in" of ip table "raw", at hook prerouting with priority -300`,
		`chain "in" of netdev table "early", at hook ingress with priority 0`,
	}
	for packet, want := range map[*trace.Packet][]string{
		&toPeer: {
			`chain "OUTPUT" of ip table "equal", at hook output with priority -101`, `chain "out" of inet table "drops", at hook output with priority -301`,
			`chain "out" of inet table "front", at hook output with priority -301`,
		},
		&toPod: arriving,
	} {
		out := n.trace(t, *packet)
		var got []string
		for line := range strings.Lines(out) {
			if hook, isDoubt := strings.CutPrefix(line, doubt+"   other rules can affect the packet: "); isDoubt {
				got = append(got, strings.TrimSpace(hook))
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) || !strings.Contains(out, "verdict      redirected to port") {
			t.Errorf("it names %q, want %q, and what the pod's own rules do:\n%s", got, want, out)
		}
	}
	if out := n.trace(t, toSelf); !strings.Contains(out, arriving[0]) { // by lo
		t.Errorf("a packet to the pod itself does not meet the hooks for arriving packets:\n%s", out)
	}
}

// TestTraceOfIPTables takes the tables that hold the pod's rules for its own, and one of
// another variant for foreign.
func TestTraceOfIPTables(t *testing.T) {
	t.Parallel()
	for _, name := range []config.Backend{config.IPTablesNFT, config.IPTablesLegacy} {
		t.Run(string(name), func(t *testing.T) {
			backend, err := netfilter.Find(t.Context(), name)
			lab.Check(t, err)
			n := newNode()
			p := n.run(t, "web")
			p.captureBy(t, backend, nil)
			for _, packet := range []trace.Packet{toPeer, toPod} {
				if out := n.trace(t, packet); strings.Contains(out, doubt) || !strings.Contains(out, " in table nat: ") || !strings.Contains(out, "in iptables' built-in chains, no rule of another program") {
					t.Errorf("%+v:\n%s", packet, out)
				}
			}
		})
	}
	n := newNode()
	p := n.run(t, "web")
	p.capture(t, nil)
	p.execute(t, "iptables-legacy", "-t", "mangle", "-A", "OUTPUT", "-j", "RETURN")
	if out := n.trace(t, toPeer); !strings.Contains(out, "the legacy ipv4 table mangle\n") || strings.Contains(out, "built-in chains") {
		t.Errorf("a legacy table:\n%s", out)
	}
}

// TestTraceOfOtherPods says why there is no certain trace of them.
func TestTraceOfOtherPods(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		prepare func(t *testing.T, n *node, p *pod)
		want    []string
	}{
		"drifted": {func(t *testing.T, _ *node, p *pod) {
			p.capture(t, nil)
			p.nft(t, "insert", "rule", "inet", "capture-cni", "nat_OUTPUT", "return")
		}, []string{doubt + "   the pod is drifted: ", "otherwise    leaving that aside", "redirected to port 15001"}},
		"uncaptured": {func(*testing.T, *node, *pod) {}, []string{"verdict      passes: the pod is not captured\nbecause      "}},
		"not known":  {func(_ *testing.T, n *node, _ *pod) { delete(n.pods, "web") }, []string{doubt + "   the pod is unknown: "}},
		"exempt":     {change(func(s *cri.Sandbox) { s.Annotations["sidecar.istio.io/interceptionMode"] = "NONE" }), []string{"verdict      passes: the pod is not captured\nbecause      ", "interceptionMode is NONE"}},
		"with istio-init": {func(_ *testing.T, n *node, _ *pod) {
			capabilities := &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN"}}}
			n.pods["web"].Spec.InitContainers = append(n.pods["web"].Spec.InitContainers, corev1.Container{Name: "istio-init", SecurityContext: capabilities})
		}, []string{doubt + "   the pod is exempt: container istio-init sets up"}},
		"not in the mesh": {change(func(s *cri.Sandbox) { s.Annotations = nil }), []string{"in the mesh  no: "}},
		"isolated":        {change(func(s *cri.Sandbox) { s.Runtime.Handler = "kata" }), []string{"verdict      passes: the pod is not captured\nbecause      its runtime kata"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode()
			p := n.run(t, "web")
			tt.prepare(t, n, p)
			out := n.trace(t, toPeer)
			if missing := slices.IndexFunc(tt.want, func(want string) bool { return !strings.Contains(out, want) }); missing >= 0 {
				t.Errorf("it does not say %q:\n%s", tt.want[missing], out)
			}
		})
	}
}

// change changes the pod's sandbox.
func change(f func(s *cri.Sandbox)) func(*testing.T, *node, *pod) {
	return func(_ *testing.T, n *node, p *pod) {
		f(&p.sandbox)
		n.sandboxes["web"] = p.sandbox
	}
}

func (n *node) trace(t *testing.T, packet trace.Packet) string {
	t.Helper()
	examining.Lock()
	defer examining.Unlock()
	traced, err := n.newGuard(t, options{policy: guard.ReportOnly}).Trace(t.Context(), "shop", "web", packet)
	lab.Check(t, err)
	return textOf(t, traced)
}
