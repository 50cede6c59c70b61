// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"net/http"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/kubeapi"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
)

// TestCheckSparesPods: where CRI-O starts again it gives up each pod whose CHECK
// fails. None may fail that holds what it was to get when it was made.
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
	empty := func(t *testing.T, _ node, host *lab.Host) { script(t, host, "delete table inet capture-cni") }
	tampered := func(t *testing.T, _ node, host *lab.Host) {
		script(t, host, "flush chain inet capture-cni nat_ISTIO_INBOUND")
	}
	type change = func(*testing.T, node, *lab.Host)
	for name, tt := range map[string]struct {
		changes []change
		code    int // 0 for none
		text    string
	}{
		"its annotations were edited":                {[]change{edited("traffic.sidecar.istio.io/excludeInboundPorts", "9000")}, 0, ""},
		"and can't be understood":                    {[]change{edited("traffic.sidecar.istio.io/excludeInboundPorts", "http")}, 0, ""},
		"nor are there rules":                        {[]change{edited("traffic.sidecar.istio.io/excludeInboundPorts", "http"), empty}, 100, "excludeInboundPorts"},
		"its runtime class is refused by now":        {[]change{sandboxed}, 0, ""},
		"and there are no rules":                     {[]change{sandboxed, empty}, 101, "kata"},
		"no API server":                              {[]change{func(_ *testing.T, n node, _ *lab.Host) { n.Misbehave(down) }}, 0, ""},
		"no API server and no rules":                 {[]change{func(_ *testing.T, n node, _ *lab.Host) { n.Misbehave(down) }, empty}, 11, "looking up pod shop/web"},
		"the guard has repaired it":                  {[]change{repaired}, 0, ""},
		"the guard has repaired it, then was undone": {[]change{repaired, tampered}, 999, "nat_ISTIO_INBOUND"},
		"no rules":               {[]change{empty}, 999, "missing: table capture-cni"},
		"rules of ours, changed": {[]change{tampered}, 999, "nat_ISTIO_INBOUND"},
		"annotations were edited and no rules left":   {[]change{edited("traffic.sidecar.istio.io/excludeInboundPorts", "9000"), empty}, 999, "missing: table capture-cni"},
		"no credentials, which are not the pod's own": {[]change{func(_ *testing.T, n node, _ *lab.Host) { n.Misbehave(unauthorized) }}, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			n, host := newNode(t), sandbox(t)
			c := call{netns: host.Path(), stdin: n.conf("")}
			c.run(t).succeeds(t)
			for _, change := range tt.changes {
				change(t, n, host)
			}
			before, asked := ruleset(t, host), n.Requests()
			c.command = "CHECK"
			if o := c.run(t); tt.code == 0 {
				o.silent(t)
			} else {
				o.fails(t, tt.code, tt.text)
			}
			if n.Requests() != asked+1 {
				t.Errorf("the API server was asked %d times", n.Requests()-asked)
			}
			if after := ruleset(t, host); after != before {
				t.Errorf("CHECK changed the rules:\n%s", after)
			}
		})
	}
}

// sandboxed gives the pod a runtime class that an ADD refuses.
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
	check(t, err)
	check(t, host.Do(func() error {
		if err := netfilter.Remove(t.Context()); err != nil {
			return err
		}
		return netfilter.NFTables{}.Apply(t.Context(), capture.Rules(decision.Intent))
	}))
}
