// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"testing"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
)

// TestIstioCNIRestarted restarts istio-cni's agents next to ours. Because the guide names the
// primary's list, istio-cni adds itself to that one again, and not to ours. Each agent that ends
// removes istio-cni, so the guide itself must not restart any.
func TestIstioCNIRestarted(t *testing.T) {
	c.ReplaceByIstioCNI(t)
	before := istioAgents(t)
	migrator{c.NewOperator(t)}.hold(t)
	if after := istioAgents(t); after != before {
		t.Fatalf("istio-cni's agents were %s, and are %s", before, after)
	}
	turnover := suite.StartTurnover(t, c.NewNamespace(t, suite.Restricted, cluster.Injected), 1, suite.Ready, suite.Server)
	defer turnover.End(t)
	c.InstallChart(t, beside, "mode=owned")
	expect(t, turnover, "both", ours)
	c.MustKubectl(t, "--namespace", cluster.IstioNamespace, "delete", "pod", "--selector=k8s-app=istio-cni-node")
	waitForIstioEntry(t)
	expect(t, turnover, "restarted", ours)
	expectEachCapturedOnce(t, turnover)
}
