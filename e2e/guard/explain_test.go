// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/install/guard"
)

// TestExplain tells of a pod what an operator has to know, and touches nothing.
func TestExplain(t *testing.T) {
	n := newNode()
	p := n.run(t, "web")
	p.capture(t, nil)
	n.pods["web"].Annotations["traffic.sidecar.istio.io/excludeOutboundPorts"] = "5432"
	p.nft(t, "insert", "rule", "inet", "capture-cni", "nat_OUTPUT", "return")
	before := p.list(t)
	keeper, _ := n.keeper(t, guard.ReportOnly)
	var out strings.Builder
	check(t, keeper.Explain(t.Context(), "shop", "web", &out))
	for _, want := range []string{
		"sandbox      web", `excludeOutboundPorts: nothing; now "5432"`, "state        drifted", "because      ", "nat_OUTPUT", "kernel       backend nftables, capture-cni rules v1",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, out.String())
		}
	}
	if after := p.list(t); after != before {
		t.Errorf("it changed the rules:\n%s", after)
	}
	if err := keeper.Explain(t.Context(), "shop", "none", &out); !errors.Is(err, guard.ErrNotHere) {
		t.Errorf("a pod that is not there: %v", err)
	}
}
