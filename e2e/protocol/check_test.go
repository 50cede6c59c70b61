// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"fmt"
	"net/http"
	"net/netip"
	"os/exec"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/kubeapi"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
	"github.com/capture-cni/capture-cni/plugin/nftables"
)

// TestCheckSparesPods expects CHECK to succeed for every pod with the rules of its
// ADD: after a restart of CRI-O, pods whose CHECK fails are replaced.
func TestCheckSparesPods(t *testing.T) {
	down := func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusInternalServerError)
		return true
	}
	edited := func(key, value string) func(*testing.T, node, *lab.Host) {
		return func(_ *testing.T, n node, _ *lab.Host) {
			n.Put(meshed(func(p *corev1.Pod) { p.Annotations[key] = value }))
		}
	}
	empty := func(t *testing.T, _ node, host *lab.Host) { host.Load(t, "delete table inet capture-cni") }
	tampered := func(t *testing.T, _ node, host *lab.Host) {
		host.Load(t, "flush chain inet capture-cni nat_ISTIO_INBOUND")
	}
	type change = func(*testing.T, node, *lab.Host)
	for name, tt := range map[string]struct {
		changes []change
		code    int // 0 for none
		text    string
	}{
		"annotations edited":                  {[]change{edited("traffic.sidecar.istio.io/excludeInboundPorts", "9000")}, 0, ""},
		"annotations invalid":                 {[]change{edited("traffic.sidecar.istio.io/excludeInboundPorts", "http")}, 0, ""},
		"annotations invalid and no rules":    {[]change{edited("traffic.sidecar.istio.io/excludeInboundPorts", "http"), empty}, 100, "excludeInboundPorts"},
		"runtime class refused since ADD":     {[]change{sandboxed}, 0, ""},
		"runtime class refused and no rules":  {[]change{sandboxed, empty}, 101, "kata"},
		"no API server":                       {[]change{func(_ *testing.T, n node, _ *lab.Host) { n.Misbehave(down) }}, 0, ""},
		"no API server and no rules":          {[]change{func(_ *testing.T, n node, _ *lab.Host) { n.Misbehave(down) }, empty}, 11, "looking up pod shop/web"},
		"repaired by the guard":               {[]change{repaired}, 0, ""},
		"repaired by the guard, then changed": {[]change{repaired, tampered}, 999, "nat_ISTIO_INBOUND"},
		"no rules":                            {[]change{empty}, 999, "missing: table capture-cni"},
		"rules changed":                       {[]change{tampered}, 999, "nat_ISTIO_INBOUND"},
		"annotations edited and no rules":     {[]change{edited("traffic.sidecar.istio.io/excludeInboundPorts", "9000"), empty}, 999, "missing: table capture-cni"},
		"credentials refused":                 {[]change{func(_ *testing.T, n node, _ *lab.Host) { n.Misbehave(unauthorized) }}, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			n, host := newNode(t), sandbox(t)
			c := call{netns: host.Path(), stdin: n.conf("")}
			c.run(t).succeeds(t)
			for _, change := range tt.changes {
				change(t, n, host)
			}
			before, requests := ruleset(t, host), n.Requests()
			c.command = "CHECK"
			if o := c.run(t); tt.code == 0 {
				o.silent(t)
			} else {
				o.fails(t, tt.code, tt.text)
			}
			if got := n.Requests() - requests; got != 1 {
				t.Errorf("%d API requests, want 1", got)
			}
			if after := ruleset(t, host); after != before {
				t.Errorf("CHECK changed the rules:\n%s", after)
			}
		})
	}
}

// sandboxed sets a runtime class that ADD refuses.
func sandboxed(_ *testing.T, n node, _ *lab.Host) {
	n.Put(meshed(func(p *corev1.Pod) { p.Spec.RuntimeClassName = new("kata") }))
}

func unauthorized(w http.ResponseWriter, r *http.Request) bool {
	kubeapi.WriteStatus(w, r, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
	return true
}

// repaired replaces a pod's rules as the guard does.
func repaired(t *testing.T, _ node, host *lab.Host) {
	t.Helper()
	decision, err := lab.Decide(meshed(), config.DefaultSettings(), netip.MustParseAddr("192.0.2.1"))
	lab.Check(t, err)
	lab.Check(t, host.Do(func() error {
		if err := netfilter.Remove(t.Context()); err != nil {
			return err
		}
		return nftables.Backend{}.Apply(t.Context(), capture.Rules(decision.Intent))
	}))
}

// TestBackendChanged expects CHECK and DEL to find the rules of an ADD by another backend:
// CRI-O replaces pods whose CHECK fails.
func TestBackendChanged(t *testing.T) {
	t.Parallel()
	backends := []config.Backend{config.NFTables, config.IPTablesNFT, config.IPTablesLegacy}
	for i, made := range backends {
		t.Run(string(made), func(t *testing.T) {
			n, host := newNode(t), sandbox(t)
			by := func(backend config.Backend) string { return n.conf(fmt.Sprintf(`"backend": %q,`, backend)) }
			c := call{netns: host.Path(), stdin: by(made)}
			c.run(t).succeeds(t)
			c.command = "CHECK"
			for _, asked := range backends {
				c.stdin = by(asked)
				c.run(t).silent(t)
			}
			lab.Check(t, host.Do(func() error {
				switch made {
				case config.IPTablesLegacy:
					return exec.CommandContext(t.Context(), "iptables-legacy", "--wait", "-t", "nat", "-F", "ISTIO_INBOUND").Run()
				case config.IPTablesNFT:
					return exec.CommandContext(t.Context(), "iptables-nft", "-t", "nat", "-F", "ISTIO_INBOUND").Run()
				}
				return exec.CommandContext(t.Context(), "nft", "flush chain inet capture-cni nat_ISTIO_INBOUND").Run()
			}))
			other := backends[(i+1)%len(backends)]
			c.stdin = by(other)
			c.run(t).fails(t, 999, "ISTIO_INBOUND")
			call{netns: host.Path(), stdin: by(other)}.deleteBy(t, "")
			expectNoRules(t, host)
		})
	}
}
