// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/guard"
	"github.com/capture-cni/capture-cni/install/terms"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

// TestStates brings a pod into each state: the guard reports it and, with a policy
// that repairs, repairs only what it may.
func TestStates(t *testing.T) {
	for _, tt := range []struct {
		name     string
		happened func(t *testing.T, n *node, p *pod)
		want     terms.State
		repaired bool
	}{
		{"captured", func(t *testing.T, _ *node, p *pod) { p.capture(t, nil) }, terms.Captured, false},
		{"no rules", func(*testing.T, *node, *pod) {}, terms.Uncaptured, true},
		{"rules deleted", func(t *testing.T, _ *node, p *pod) {
			p.capture(t, nil)
			p.nft(t, "delete", "table", "inet", "capture-cni")
		}, terms.Uncaptured, true},
		{"rules flushed", func(t *testing.T, _ *node, p *pod) {
			p.capture(t, nil)
			p.nft(t, "flush", "table", "inet", "capture-cni")
		}, terms.Drifted, true},
		{"a rule added", func(t *testing.T, _ *node, p *pod) {
			p.capture(t, nil)
			p.nft(t, "insert", "rule", "inet", "capture-cni", "nat_OUTPUT", "return")
		}, terms.Drifted, true},
		{"another configuration", func(t *testing.T, _ *node, p *pod) {
			p.capture(t, map[string]string{"traffic.sidecar.istio.io/excludeInboundPorts": "9090"})
		}, terms.Outdated, false},
		{"annotations loosened", func(t *testing.T, n *node, p *pod) {
			p.capture(t, nil)
			n.pods[p.sandbox.ID].Annotations["traffic.sidecar.istio.io/includeOutboundIPRanges"] = ""
		}, terms.Changed, false},
		{"annotations made invalid", func(t *testing.T, n *node, p *pod) {
			p.capture(t, nil)
			n.pods[p.sandbox.ID].Annotations["traffic.sidecar.istio.io/includeOutboundIPRanges"] = "no range"
		}, terms.Changed, false},
		{"no rules and annotations made invalid", func(_ *testing.T, n *node, p *pod) {
			n.pods[p.sandbox.ID].Annotations["traffic.sidecar.istio.io/includeOutboundIPRanges"] = "no range"
		}, terms.Uncaptured, true},
		{"annotations that exempt it", func(t *testing.T, n *node, p *pod) {
			p.capture(t, nil)
			n.pods[p.sandbox.ID].Annotations["sidecar.istio.io/interceptionMode"] = "NONE"
		}, terms.Changed, false},
		{"no rules and annotations loosened", func(_ *testing.T, n *node, p *pod) {
			n.pods[p.sandbox.ID].Annotations["traffic.sidecar.istio.io/includeOutboundIPRanges"] = ""
		}, terms.Uncaptured, true},
		{"captured by istio-cni", func(t *testing.T, _ *node, p *pod) {
			p.nft(t, "add", "table", "ip", "nat")
			p.nft(t, "add", "chain", "ip", "nat", "ISTIO_OUTPUT")
		}, terms.Foreign, false},
		{"no API server", func(_ *testing.T, n *node, p *pod) { delete(n.pods, p.sandbox.ID) }, terms.Unknown, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode()
			p := n.run(t, "web")
			tt.happened(t, n, p)
			before := p.list(t)

			reporter, registry := n.keeper(t, guard.ReportOnly)
			reporter.Round(t.Context())
			expect(t, registry, map[terms.State]float64{tt.want: 1})
			if after := p.list(t); after != before {
				t.Errorf("a report changed the rules:\n%s", after)
			}

			keeper, registry := n.keeper(t, guard.InPlace)
			keeper.Round(t.Context())
			if !tt.repaired {
				expect(t, registry, map[terms.State]float64{tt.want: 1})
				if after := p.list(t); after != before {
					t.Errorf("what is only to be reported was changed:\n%s", after)
				}
				return
			}
			expect(t, registry, map[terms.State]float64{terms.Captured: 1})
			if !strings.Contains(p.list(t), "redirect to :15001") {
				t.Errorf("it is not captured:\n%s", p.list(t))
			}
			keeper.Round(t.Context()) // of repaired rules
			next := terms.Captured
			if !maps.Equal(n.pods["web"].Annotations, p.sandbox.Annotations) {
				next = terms.Changed
			}
			expect(t, registry, map[terms.State]float64{next: 1})
		})
	}
}

// TestConnectionsLiveOn repairs a pod with an open connection: that goes on, the
// next one is captured.
func TestConnectionsLiveOn(t *testing.T) {
	for _, mode := range []string{"REDIRECT", "TPROXY"} {
		t.Run(mode, func(t *testing.T) { testConnectionsLiveOn(t, mode) })
	}
}

func testConnectionsLiveOn(t *testing.T, mode string) {
	n := newNode()
	p := n.run(t, "web")
	p.sandbox.Annotations["sidecar.istio.io/interceptionMode"] = mode
	p.echo(t, appPort)
	ongoing := p.dial(t)
	lab.Check(t, works(ongoing))

	keeper, registry := n.keeper(t, guard.InPlace)
	keeper.Round(t.Context())
	expect(t, registry, map[terms.State]float64{terms.Captured: 1})
	for range 3 {
		if err := works(ongoing); err != nil {
			t.Fatalf("the connection of before ended: %v", err)
		}
	}
	proxy, err := p.host.ServeProxy(lab.Owner{UID: 1337, GID: 1337}, "tcp", fmt.Sprintf(":%d", inboundPort), "proxy")
	lab.Check(t, err)
	defer proxy.Close()
	answer, err := p.peer.Ask(lab.Owner{}, "tcp", "", fmt.Sprintf("%s:%d", podAddress, appPort))
	if err != nil || answer.Server != "proxy" {
		t.Errorf("a new connection reaches %q, %v", answer.Server, err)
	}
	lab.Check(t, works(ongoing))
}

// TestProxiedConnectionsLiveOn has a connection through the proxy speak all the
// time, and others begin, while rules are changed and repaired, again and
// again. The change does no harm itself, and no server listens behind the proxy:
// a connection that went past it would be refused.
func TestProxiedConnectionsLiveOn(t *testing.T) {
	for mode, chain := range map[string]string{"REDIRECT": "nat_PREROUTING", "TPROXY": "mangle_PREROUTING"} {
		t.Run(mode, func(t *testing.T) {
			n := newNode()
			p := n.run(t, "web")
			p.sandbox.Annotations["sidecar.istio.io/interceptionMode"] = mode
			p.echo(t, inboundPort)
			keeper, _ := n.keeper(t, guard.InPlace)
			keeper.Round(t.Context())
			ongoing := p.dial(t)
			ctx, end := context.WithCancel(t.Context())
			defer end()
			ended := make(chan error, 1)
			go func() {
				err := works(ongoing)
				for err == nil && ctx.Err() == nil {
					err = errors.Join(works(ongoing), p.reach())
				}
				ended <- err
			}()
			for range 20 {
				p.nft(t, "add", "rule", "inet", "capture-cni", chain, "counter", "comment", `"stray"`)
				keeper, registry := n.keeper(t, guard.InPlace) // one that has repaired the pod before would wait
				keeper.Round(t.Context())
				expect(t, registry, map[terms.State]float64{terms.Captured: 1})
				if rules := p.list(t); strings.Contains(rules, "stray") {
					t.Fatalf("it is not repaired:\n%s", rules)
				}
			}
			end()
			if err := <-ended; err != nil {
				t.Errorf("a connection ended, or went past the proxy: %v", err)
			}
		})
	}
}

// TestExempt never touches a pod that is not captured on purpose, counts one of
// the mesh by its cause, and reads no pod whose sandbox says enough.
func TestExempt(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(s *cri.Sandbox)
		cause  capture.ExemptionCause // "" outside the mesh
		reads  int
	}{
		"not injected":          {func(s *cri.Sandbox) { s.Annotations = nil }, "", 0},
		"the node's network":    {func(s *cri.Sandbox) { s.NetNS = "" }, "", 0},
		"an excluded namespace": {func(s *cri.Sandbox) { s.Namespace = "excluded" }, capture.NamespaceExcluded, 0},
		"interception NONE":     {func(s *cri.Sandbox) { s.Annotations["sidecar.istio.io/interceptionMode"] = "NONE" }, capture.InterceptionNone, 1},
		"opted out by label":    {func(s *cri.Sandbox) { s.Labels = map[string]string{"sidecar.istio.io/inject": "false"} }, capture.InjectFalse, 1},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode()
			p := n.run(t, "web")
			sandbox := p.sandbox
			tt.change(&sandbox)
			n.sandboxes["web"] = sandbox
			keeper, registry := n.keeper(t, guard.InPlace)
			keeper.Round(t.Context())
			want := map[terms.State]float64{}
			if tt.cause != "" {
				want[terms.Exempt] = 1
			}
			expect(t, registry, want)
			expectExempt(t, registry, tt.cause)
			if state := p.rules(t); state != (netfilter.State{}) || n.reads != tt.reads {
				t.Errorf("it holds %+v after %d reads, want none after %d", state, n.reads, tt.reads)
			}
		})
	}
}

// expectExempt wants one exempt pod, of this cause, or none.
func expectExempt(t *testing.T, registry *prometheus.Registry, cause capture.ExemptionCause) {
	t.Helper()
	families, err := registry.Gather()
	lab.Check(t, err)
	counted := 0
	for _, family := range families {
		if family.GetName() != "capture_cni_exempt_pods" {
			continue
		}
		for _, metric := range family.GetMetric() {
			counted++
			is := capture.ExemptionCause(metric.GetLabel()[0].GetValue())
			if got := metric.GetGauge().GetValue() == 1; got != (is == cause) {
				t.Errorf("a pod is exempt for %s: %v", is, got)
			}
		}
	}
	if want := len(terms.MeshedExemptions()); counted != want {
		t.Errorf("%d causes are counted, want %d", counted, want)
	}
}

// TestLockIsFreeDuringAPIReads runs a DEL while the guard reads the pod: the lock is
// free.
func TestLockIsFreeDuringAPIReads(t *testing.T) {
	n := newNode()
	p := n.run(t, "web")
	p.capture(t, nil)
	n.reading = func() {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		netns, err := podnet.Open(ctx, p.sandbox.NetNS)
		if err != nil {
			t.Errorf("the namespace can't be had while the API server is asked: %v", err)
			return
		}
		_ = netns.Close()
	}
	keeper, registry := n.keeper(t, guard.InPlace)
	keeper.Round(t.Context())
	expect(t, registry, map[terms.State]float64{terms.Captured: 1})
	if n.reads != 1 {
		t.Errorf("%d reads, want 1", n.reads)
	}
}

// TestAtOnce has no more than so many pods repaired in one go.
func TestAtOnce(t *testing.T) {
	n := newNode()
	for i := range 40 {
		n.run(t, fmt.Sprintf("web-%d", i))
	}
	keeper, registry := n.keeper(t, guard.InPlace)
	began := time.Now()
	wholeRound(t, keeper)
	most := 30 + time.Since(began).Seconds() + 1
	families, err := registry.Gather()
	lab.Check(t, err)
	for _, family := range families {
		if family.GetName() == "capture_cni_pod_repairs_total" {
			if got := family.GetMetric()[0].GetCounter().GetValue(); got < 30 || got > most {
				t.Errorf("%v of 40 pods were repaired at once", got)
			}
		}
	}
}

func (p *pod) nft(t *testing.T, args ...string) {
	t.Helper()
	p.execute(t, "nft", args...)
}

// execute runs a program in the pod's network namespace.
func (p *pod) execute(t *testing.T, program string, args ...string) {
	t.Helper()
	lab.Check(t, p.host.Do(func() error {
		out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s %s: %w: %s", program, args, err, out)
		}
		return nil
	}))
}

// list is all that nft sees, without counters.
func (p *pod) list(t *testing.T) string {
	t.Helper()
	var out []byte
	lab.Check(t, p.host.Do(func() (err error) {
		out, err = exec.CommandContext(t.Context(), "nft", "--stateless", "list", "ruleset").Output()
		return err
	}))
	return string(out)
}
