// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestRevisions has pods of two control planes, as during a canary upgrade of Istio:
// both are captured, and connect to each other through both sidecars.
func TestRevisions(t *testing.T) {
	c.InstallChart(t)
	canary := cluster.Revision{Name: "canary", Address: "10.96.0.16"}
	t.Cleanup(func() {
		if err := c.UninstallIstio(context.WithoutCancel(t.Context()), canary); err != nil {
			t.Error(err)
		}
	})
	lab.Check(t, c.InstallIstio(t.Context(), canary))
	n := c.NewNamespace(t, suite.Restricted)
	var pods []*corev1.Pod
	for i, revision := range []string{"default", "canary"} {
		pod := sidecars["native"].server(revision, c.Nodes[i].Name)
		pod.Labels["istio.io/rev"] = revision
		pods = append(pods, pod)
		n.Expose(t, revision)
	}
	n.Run(t, pods...)
	for _, pod := range pods {
		injected := n.Get(t, pod.Name)
		expectInjected(t, injected, sidecars["native"])
		if got := injected.Annotations["istio.io/rev"]; got != pod.Name {
			t.Errorf("%s was injected by the revision %q", pod.Name, got)
		}
		n.ExpectCaptured(t, pod.Name)
	}
	n.ExpectBothProxies(t, "default", "canary")
	n.ExpectBothProxies(t, "canary", "default")
}
