// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// uncaptured is the exit code of Istio's validation in a pod without rules.
const uncaptured = 126

// TestValidationFails has pods that the plugin leaves alone: Istio's validation ends
// them before an application starts, so that its success elsewhere is the rules' doing.
func TestValidationFails(t *testing.T) {
	pods := map[string]suite.Namespace{}
	excluded := ""
	for name, s := range sidecars {
		pods[name] = s.namespace(t)
		excluded += pods[name].Name + ","
	}
	c.InstallChart(t, fmt.Sprintf("netconf.excludeNamespaces={%s}", excluded[:len(excluded)-1]))
	for name, n := range pods {
		n.Create(t, sidecars[name].server("web", c.Nodes[0].Name))
	}
	for name, n := range pods {
		lab.Eventually(t, func() error {
			code, ended := validated(n.Get(t, "web"))
			if !ended {
				return fmt.Errorf("istio-validation of a %s sidecar has not ended", name)
			}
			if code != uncaptured {
				t.Fatalf("istio-validation of a %s sidecar ended with %d, want %d", name, code, uncaptured)
			}
			return nil
		})
		if phase := n.Get(t, "web").Status.Phase; phase != corev1.PodPending {
			t.Errorf("the pod with a %s sidecar is %s", name, phase)
		}
	}
}
