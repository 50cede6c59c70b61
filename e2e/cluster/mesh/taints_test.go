// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// The startup taints of both plugins.
const (
	ownTaint   = "capture-cni.io/not-ready"
	istioTaint = "cni.istio.io/not-ready"
)

// TestBothTaints has nodes that were registered with both startup taints. istiod takes
// Istio's away once an agent of this project bears the label of istio-cni's, in the
// namespace that istiod watches; without the label, the nodes stay empty.
func TestBothTaints(t *testing.T) {
	c.InstallChart(t)
	c.UninstallChart(t)
	n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
	t.Cleanup(func() {
		for _, taint := range []string{ownTaint, istioTaint} {
			_, _ = c.Kubectl(context.WithoutCancel(t.Context()), "", "taint", "node", "--all", taint+"-") // an error for nodes without it
		}
	})
	taintNodes(t)
	early := suite.Server("early", "") // for the scheduler
	n.Create(t, early)
	c.InstallChart(t, "taint.remove=true")
	expectTaints(t, istioTaint)
	if node := n.Get(t, "early").Spec.NodeName; node != "" {
		t.Errorf("the pod was scheduled to %s, whose taint istiod has not taken away", node)
	}
	c.InstallChart(t, "taint.remove=true", "podLabels.k8s-app=istio-cni-node")
	expectTaints(t)
	n.WaitReady(t, early)
	n.ExpectCaptured(t, "early")
	taintNodes(t) // now agents and istiod edit the same list at the same time
	expectTaints(t)
}

func taintNodes(t *testing.T) {
	t.Helper()
	c.MustKubectl(t, "taint", "node", "--all", "--overwrite", ownTaint+"=:NoSchedule", istioTaint+"=:NoSchedule")
}

// expectTaints waits until every node has these taints and no others.
func expectTaints(t *testing.T, want ...string) {
	t.Helper()
	for _, node := range c.Nodes {
		lab.Eventually(t, func() error {
			got := strings.Fields(c.MustKubectl(t, "get", "node", node.Name, "-o", "jsonpath={.spec.taints[*].key}"))
			if !slices.Equal(got, want) {
				return fmt.Errorf("%s has the taints %q, want %q", node.Name, got, want)
			}
			return nil
		})
	}
}
