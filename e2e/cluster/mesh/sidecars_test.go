// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
)

func TestSidecars(t *testing.T) {
	c.InstallChart(t)
	n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
	var pods []*corev1.Pod
	for _, node := range c.Nodes {
		pods = append(pods, suite.Server("web-"+node.Name, node.Name))
	}
	suite.Eventually(t, func() error { return n.TryCreate(t.Context(), pods[0]) })
	n.Create(t, pods[1:]...)
	n.WaitReady(t, pods...)
	for _, pod := range pods {
		n.ExpectCaptured(t, pod.Name)
	}
}
