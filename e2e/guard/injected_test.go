// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/guard"
	"github.com/capture-cni/capture-cni/install/terms"
)

// TestInjectedLater has pods whose annotations were edited while they run: the plugin
// has passed them, and the API server shows them as pods of the mesh.
func TestInjectedLater(t *testing.T) {
	n := newNode()
	plain := func(name string, change func(*cri.Sandbox)) *pod {
		p := n.run(t, name)
		p.sandbox.Annotations = map[string]string{}
		change(&p.sandbox)
		n.sandboxes[name] = p.sandbox
		return p
	}
	later := plain("later", func(*cri.Sandbox) {})
	plain("excluded", func(s *cri.Sandbox) { s.Namespace = "excluded" })
	plain("of-the-node", func(s *cri.Sandbox) { s.NetNS = "" })
	plain("without-proxy", func(*cri.Sandbox) {})
	n.pods["without-proxy"].Spec.Containers = n.pods["without-proxy"].Spec.Containers[:1]
	delete(n.pods["later"].Annotations, "sidecar.istio.io/status")

	keeper, registry := n.keeper(t, guard.InPlace)
	wholeRound(t, keeper)
	wholeRound(t, keeper)
	expect(t, registry, map[terms.State]float64{terms.Exempt: 1})

	n.pods["later"].Annotations["sidecar.istio.io/status"] = "{}"
	wholeRound(t, keeper)
	wholeRound(t, keeper)
	expect(t, registry, map[terms.State]float64{terms.InjectedLater: 1, terms.Exempt: 1})
	if backend := later.rules(t).Backend; backend != "" {
		t.Errorf("the pod was captured by %s", backend)
	}
	out := explanation(t, keeper, "shop", "later")
	for _, want := range []string{"state        injected_later\n", "sidecar.istio.io/status: nothing; now "} {
		if !strings.Contains(out, want) {
			t.Errorf("the explanation lacks %q:\n%s", want, out)
		}
	}

	delete(n.pods["later"].Annotations, "sidecar.istio.io/status")
	wholeRound(t, keeper)
	wholeRound(t, keeper)
	expect(t, registry, map[terms.State]float64{terms.Exempt: 1})
}
