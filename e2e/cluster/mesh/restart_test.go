// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"testing"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestIstioCNIRestarted restarts istio-cni's agents next to ours. Because istio-cni knows
// the primary's list by name, it adds itself to that one again, and not to ours.
func TestIstioCNIRestarted(t *testing.T) {
	c.ReplaceByIstioCNI(t)
	lab.Check(t, c.InstallIstioCNI(t.Context(), "cniConfFileName="+cluster.NetworkConf))
	turnover := suite.StartTurnover(t, c.NewNamespace(t, suite.Restricted, cluster.Injected), 1, suite.Ready, suite.Server)
	defer turnover.End(t)
	c.InstallChart(t, beside, "mode=owned")
	expect(t, turnover, "both", ours)
	c.MustKubectl(t, "--namespace", cluster.IstioNamespace, "delete", "pod", "--selector=k8s-app=istio-cni-node")
	c.MustKubectl(t, "--namespace", cluster.IstioNamespace, "rollout", "status", "daemonset/istio-cni-node", suite.KubectlTimeout)
	waitForIstioEntry(t)
	expect(t, turnover, "restarted", ours)
	expectEachCapturedOnce(t, turnover)
}
