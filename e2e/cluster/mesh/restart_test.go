// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestIstioCNIRestarted restarts istio-cni's agents next to ours. Because the guide names the
// primary's list, istio-cni adds itself to that one again, and not to ours. Each agent that ends
// removes istio-cni, so the guide itself must not restart any.
func TestIstioCNIRestarted(t *testing.T) {
	c.ReplaceByIstioCNI(t)
	before := istioAgents(t)
	migrator{c.NewOperator(t)}.hold(t)
	lab.Eventually(t, func() error { // a rollout begins once the controller has seen the change
		seen := c.MustKubectl(t, "--namespace", cluster.IstioNamespace, "get", "daemonset", "istio-cni-node", "--output=jsonpath={.metadata.generation} {.status.observedGeneration}")
		if generation, observed, _ := strings.Cut(seen, " "); generation != observed {
			return fmt.Errorf("the controller has not seen the change: %s", seen)
		}
		return nil
	})
	const ending = "--output=jsonpath={range .items[*]}{.metadata.deletionTimestamp}{end}"
	if after, ends := istioAgents(t), istioAgents(t, ending); after != before || ends != "" {
		t.Fatalf("istio-cni's agents were %s, and are %s; ending: %s", before, after, ends)
	}
	restartIstioAgents(t) // as step 4 says for older versions, whose running agents do not keep their file
	turnover := suite.StartTurnover(t, c.NewNamespace(t, suite.Restricted, cluster.Injected), 1, suite.Ready, suite.Server)
	defer turnover.End(t)
	c.InstallChart(t, beside, "mode=owned")
	expect(t, turnover, "both", ours)
	restartIstioAgents(t)
	expect(t, turnover, "restarted", ours)
	expectEachCapturedOnce(t, turnover)
}

// restartIstioAgents has new agents of istio-cni add its entry again.
func restartIstioAgents(t *testing.T) {
	t.Helper()
	c.MustKubectl(t, "--namespace", cluster.IstioNamespace, "delete", "pod", "--selector=k8s-app=istio-cni-node")
	waitForIstioEntry(t)
}
