// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/install/guard"
	"github.com/capture-cni/capture-cni/install/report"
)

// asLinkerds turns a pod that runs into one of Linkerd's.
func (n *node) asLinkerds(name string) {
	sandbox := n.sandboxes[name]
	sandbox.Annotations = map[string]string{"linkerd.io/proxy-version": "edge-26.8.1", "config.linkerd.io/skip-outbound-ports": "4000-5000"}
	n.sandboxes[name], n.pods[name] = sandbox, meshed(sandbox)
	n.pods[name].Spec.Containers[1] = corev1.Container{Name: "linkerd-proxy", SecurityContext: &corev1.SecurityContext{RunAsUser: new(int64(2102))}}
}

// TestOtherMeshes has a pod of Linkerd's without rules, as one that linkerd-cni captured: it
// is repaired and explained while the mesh is on, and else left alone.
func TestOtherMeshes(t *testing.T) {
	t.Parallel()
	n := newNode()
	p := n.run(t, "web")
	n.asLinkerds("web")
	off := n.newGuard(t, options{})
	off.finds(t)
	if backend := p.rules(t).Backend; backend != "" {
		t.Errorf("a pod of a mesh that is off was captured by %s", backend)
	}
	n.netConf = strings.Replace(n.netConf, "{", `{"meshes": ["linkerd"],`, 1)
	on := n.newGuard(t, options{})
	on.finds(t, report.Captured)
	if rules := p.list(t); !strings.Contains(rules, "4000-5000") || !strings.Contains(rules, "redirect to :4140") {
		t.Errorf("the rules are not Linkerd's:\n%s", rules)
	}
	out := on.explain(t, "web")
	for _, want := range []string{"state        captured\n", `config.linkerd.io/skip-outbound-ports: "4000-5000"`, "linkerd.io/proxy-version: present"} {
		if !strings.Contains(out, want) {
			t.Errorf("the explanation lacks %q:\n%s", want, out)
		}
	}
}

// TestConsulAndKumaPods has pods whose rules depend on one annotation: their drift is repaired.
func TestConsulAndKumaPods(t *testing.T) {
	t.Parallel()
	for mesh, tt := range map[string]struct {
		mark, key, value, proxy string
		uid                     int64
		rules                   []string
	}{
		"consul": {
			"consul.hashicorp.com/transparent-proxy-status", "consul.hashicorp.com/redirect-traffic-config",
			`{"ProxyUserID": "5995", "ProxyInboundPort": 20000, "ConsulDNSPort": 8600, "ExcludeUIDs": ["5996"]}`,
			"consul-dataplane", 5995,
			[]string{"dnat ip to 127.0.0.1:8600", "skuid 5996"},
		},
		"kuma": {
			"kuma.io/sidecar-injected", "traffic.kuma.io/transparent-proxy-config",
			"redirect: {dns: {enabled: true, captureAll: true}, outbound: {excludePortsForUIDs: ['1000650000-1000659999']}}",
			"kuma-sidecar", 5678,
			[]string{"redirect to :15053", "skuid 1000650000-1000659999"},
		},
	} {
		n := newNode()
		p := n.run(t, mesh)
		sandbox := n.sandboxes[mesh]
		sandbox.Annotations = map[string]string{tt.mark: "true", tt.key: tt.value}
		n.sandboxes[mesh], n.pods[mesh] = sandbox, meshed(sandbox)
		n.pods[mesh].Spec.Containers[1] = corev1.Container{Name: tt.proxy, SecurityContext: &corev1.SecurityContext{RunAsUser: &tt.uid}}
		n.netConf = strings.Replace(n.netConf, "{", `{"meshes": ["`+mesh+`"],`, 1)
		g := n.newGuard(t, options{})
		g.finds(t, report.Captured)
		p.execute(t, "nft", "flush", "chain", "inet", "capture-cni", "nat_ISTIO_OUTPUT")
		g.round(t)
		g.finds(t, report.Captured)
		rules := p.list(t)
		for _, want := range tt.rules {
			if !strings.Contains(rules, want) {
				t.Errorf("the rules of %s lack %q:\n%s", mesh, want, rules)
			}
		}
		if out := g.explain(t, mesh); !strings.Contains(out, tt.key+": ") {
			t.Errorf("the explanation lacks the configuration of %s:\n%s", mesh, out)
		}
	}
}

// TestBesideLinkerd has a pod with the rules of linkerd-cni, alone and next to the plugin's:
// what the guide on the migration says of both.
func TestBesideLinkerd(t *testing.T) {
	t.Parallel()
	n := newNode()
	p := n.run(t, "web")
	n.asLinkerds("web")
	n.netConf = strings.Replace(n.netConf, "{", `{"meshes": ["linkerd"],`, 1)
	p.execute(t, "iptables", "-t", "nat", "-A", "OUTPUT", "-p", "tcp", "-j", "REDIRECT", "--to-port", "4140")
	reporting := n.newGuard(t, options{policy: guard.ReportOnly})
	reporting.finds(t, report.Uncaptured)
	repairing := n.newGuard(t, options{})
	repairing.round(t)
	repairing.finds(t, report.Captured)
}
