// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/guard"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

// TestStates brings a pod into each state: the guard reports it and, with a policy
// that repairs, repairs only what it may.
func TestStates(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		happened func(t *testing.T, n *node, p *pod)
		want     report.Code
		repaired bool
	}{
		{"captured", func(t *testing.T, _ *node, p *pod) { p.capture(t, nil) }, report.Captured, false},
		{"no rules", func(*testing.T, *node, *pod) {}, report.Uncaptured, true},
		{"rules deleted", func(t *testing.T, _ *node, p *pod) {
			p.capture(t, nil)
			p.nft(t, "delete", "table", "inet", "capture-cni")
		}, report.Uncaptured, true},
		{"rules flushed", func(t *testing.T, _ *node, p *pod) {
			p.capture(t, nil)
			p.nft(t, "flush", "table", "inet", "capture-cni")
		}, report.Drifted, true},
		{"a rule added", func(t *testing.T, _ *node, p *pod) {
			p.capture(t, nil)
			p.nft(t, "insert", "rule", "inet", "capture-cni", "nat_OUTPUT", "return")
		}, report.Drifted, true},
		{"another configuration", func(t *testing.T, _ *node, p *pod) {
			p.capture(t, map[string]string{"traffic.sidecar.istio.io/excludeInboundPorts": "9090"})
		}, report.Outdated, false},
		{"annotations loosened", func(t *testing.T, n *node, p *pod) {
			p.capture(t, nil)
			n.pods[p.sandbox.ID].Annotations["traffic.sidecar.istio.io/includeOutboundIPRanges"] = ""
		}, report.Changed, false},
		{"captured by istio-cni", func(t *testing.T, _ *node, p *pod) {
			p.nft(t, "add", "table", "ip", "nat")
			p.nft(t, "add", "chain", "ip", "nat", "ISTIO_OUTPUT")
		}, report.Foreign, false},
		{"no API server", func(_ *testing.T, n *node, p *pod) { delete(n.pods, p.sandbox.ID) }, report.Unknown, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode()
			p := n.run(t, "web")
			tt.happened(t, n, p)
			before := p.list(t)
			n.newGuard(t, options{policy: guard.ReportOnly}).finds(t, tt.want)
			if after := p.list(t); after != before {
				t.Errorf("a report changed the rules:\n%s", after)
			}

			g := n.newGuard(t, options{})
			if !tt.repaired {
				g.finds(t, tt.want)
				if after := p.list(t); after != before {
					t.Errorf("what is only to be reported was changed:\n%s", after)
				}
				return
			}
			g.finds(t, report.Captured)
			if !strings.Contains(p.list(t), "redirect to :15001") {
				t.Errorf("it is not captured:\n%s", p.list(t))
			}
			g.finds(t, report.Captured) // of repaired rules
		})
	}
}

// TestConnectionsLiveOn repairs a pod with an open connection: that goes on, the
// next one is captured.
func TestConnectionsLiveOn(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"REDIRECT", "TPROXY"} {
		t.Run(mode, func(t *testing.T) { testConnectionsLiveOn(t, mode) })
	}
}

func testConnectionsLiveOn(t *testing.T, mode string) {
	n := newNode()
	p := n.run(t, "web")
	p.sandbox.Annotations["sidecar.istio.io/interceptionMode"] = mode
	echo(t, p.host, appPort, nil)
	ongoing := dial(t, p.peer, appAddress)
	lab.Check(t, works(ongoing))

	n.newGuard(t, options{}).finds(t, report.Captured)
	for range 3 {
		if err := works(ongoing); err != nil {
			t.Fatalf("the connection of before ended: %v", err)
		}
	}
	proxy, err := p.host.ServeProxy(lab.Owner{UID: 1337, GID: 1337}, "tcp", fmt.Sprintf(":%d", inboundPort), "proxy")
	lab.Check(t, err)
	defer proxy.Close()
	answer, err := p.peer.Ask(lab.Owner{}, "tcp", "", appAddress)
	if err != nil || answer.Server != "proxy" {
		t.Errorf("a new connection reaches %q, %v", answer.Server, err)
	}
	lab.Check(t, works(ongoing))
}

// TestProxiedConnectionsLiveOn has a connection through the proxy speak all the
// time, and others begin, while rules are changed and repaired, again and
// again. The change does no harm itself, and no server listens behind the proxy:
// a connection that went past it would be refused. It runs by itself, because it takes all
// processors.
func TestProxiedConnectionsLiveOn(t *testing.T) {
	for mode, chain := range map[string]string{"REDIRECT": "nat_PREROUTING", "TPROXY": "mangle_PREROUTING"} {
		t.Run(mode, func(t *testing.T) {
			n := newNode()
			p := n.run(t, "web")
			p.sandbox.Annotations["sidecar.istio.io/interceptionMode"] = mode
			echo(t, p.host, inboundPort, lab.Transparent)
			n.newGuard(t, options{}).round(t)
			ongoing := dial(t, p.peer, appAddress)
			speaking := speak(t, speakers{
				{what: "the connection of before", speak: func() error { return works(ongoing) }},
				{what: "new connections", speak: func() error { return reach(p.peer, appAddress) }},
			})
			for range 5 {
				p.nft(t, "add", "rule", "inet", "capture-cni", chain, "counter", "comment", `"stray"`)
				speaking.wait(t)
				n.newGuard(t, options{}).finds(t, report.Captured) // one that has repaired the pod before would wait
				if rules := p.list(t); strings.Contains(rules, "stray") {
					t.Fatalf("it is not repaired:\n%s", rules)
				}
				speaking.wait(t)
			}
		})
	}
}

// TestExempt never touches a pod of the mesh that is not captured on purpose, and counts it
// by its cause.
func TestExempt(t *testing.T) {
	t.Parallel()
	for cause, change := range map[capture.ExemptionCause]func(s *cri.Sandbox){
		capture.InterceptionNone: func(s *cri.Sandbox) { s.Annotations["sidecar.istio.io/interceptionMode"] = "NONE" },
		capture.InjectFalse:      func(s *cri.Sandbox) { s.Labels = map[string]string{"sidecar.istio.io/inject": "false"} },
	} {
		n := newNode()
		p := n.run(t, "web")
		change(&p.sandbox)
		n.sandboxes["web"] = p.sandbox
		g := n.newGuard(t, options{})
		g.finds(t, report.Exempt)
		if exempt := g.series(t, "exempt_pods"); exempt[string(cause)] != 1 {
			t.Errorf("exempt for %s: %v", cause, exempt)
		}
		if state := p.rules(t); state != (netfilter.State{}) || n.reads != 1 {
			t.Errorf("%s: it holds %+v after %d reads", cause, state, n.reads)
		}
	}
}

// TestLockIsFreeDuringAPIReads runs a DEL while the guard reads the pod: the lock is
// free.
func TestLockIsFreeDuringAPIReads(t *testing.T) {
	t.Parallel()
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
	n.newGuard(t, options{}).finds(t, report.Captured)
	if n.reads != 1 {
		t.Errorf("%d reads, want 1", n.reads)
	}
}

func (p *pod) nft(t *testing.T, args ...string) {
	t.Helper()
	p.execute(t, "nft", args...)
}

// execute runs a program in the pod's network namespace.
func (p *pod) execute(t *testing.T, program string, args ...string) {
	t.Helper()
	p.host.Within(t, func() error {
		out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s %s: %w: %s", program, args, err, out)
		}
		return nil
	})
}

// list is all that nft sees, without counters.
func (p *pod) list(t *testing.T) string {
	t.Helper()
	var out []byte
	p.host.Within(t, func() (err error) {
		out, err = exec.CommandContext(t.Context(), "nft", "--stateless", "list", "ruleset").Output()
		return err
	})
	return string(out)
}
