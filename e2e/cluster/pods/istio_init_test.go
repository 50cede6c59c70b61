// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestIstioInitReplaced has an injector that adds istio-init. Pod Security refuses
// such pods. With the policy, which removes istio-init, they start captured.
func TestIstioInitReplaced(t *testing.T) {
	c.InstallChart(t, "admission.istioInit.enabled=true")
	n := c.NewNamespace(t, suite.Restricted, cluster.InjectedWithInit)
	web := suite.Server("web", c.Nodes[0].Name)
	if err := n.TryCreate(t.Context(), web); err == nil || !strings.Contains(err.Error(), `violates PodSecurity "restricted`) {
		t.Fatalf("a pod with istio-init: %v", err)
	}
	n.Kubectl(t, "", "label", "namespace", n.Name, "capture-cni.io/admission=enforce")
	lab.Eventually(t, func() error { return n.TryCreate(t.Context(), web) })
	n.WaitReady(t, web)
	expectNoCapability(t, n, "web")
	n.ExpectCaptured(t, "web")
}

// TestIstioInitValidates has the policy replace istio-init by validation. A pod is
// ready only after its init containers have succeeded.
func TestIstioInitValidates(t *testing.T) {
	c.InstallChart(t, "admission.istioInit.enabled=true", "admission.istioInit.replaceBy=validate", "admission.identity.enabled=true")
	n := c.NewNamespace(t, suite.Restricted, cluster.InjectedWithInit)
	n.Kubectl(t, "", "label", "namespace", n.Name, "capture-cni.io/admission=enforce")
	web := suite.Server("web", c.Nodes[0].Name)
	web.Spec.SecurityContext.RunAsGroup = web.Spec.SecurityContext.RunAsUser // the policy identity requires it
	// The API server may still have the last test's policy in effect.
	lab.Eventually(t, func() error {
		out, err := c.Kubectl(t.Context(), suite.JSON(t, web), "--namespace", n.Name, "create", "--dry-run=server", "--filename=-", "-o", "json")
		if err == nil && !strings.Contains(out, "capture-cni-validate") {
			err = fmt.Errorf("the pod has no capture-cni-validate: %s", out)
		}
		return err
	})
	n.Create(t, web)
	n.WaitReady(t, web)
	n.ExpectCaptured(t, "web")
	var names []string
	for _, container := range n.Get(t, "web").Spec.InitContainers {
		names = append(names, container.Name)
	}
	if want := []string{"capture-cni-validate", "istio-validation", "istio-proxy"}; !slices.Equal(names, want) {
		t.Errorf("the init containers are %q, want %q", names, want)
	}
	for container, want := range map[string]string{"capture-cni-validate": "outbound IPv4: captured", "istio-validation": "inbound IPv4: captured"} {
		if said := n.Kubectl(t, "", "logs", "web", "--container", container); !strings.Contains(said, want) {
			t.Errorf("%s prints %q, want %q in it", container, said, want)
		}
	}
}
