// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/cluster"
)

// TestIstioInitReplaced has an injector that still gives pods istio-init. Pod
// Security refuses them, until the policy takes it out; then they are captured.
func TestIstioInitReplaced(t *testing.T) {
	install(t, "admission.istioInit.enabled=true")
	s := newSpace(t, restricted, cluster.InjectedWithInit)
	web := server("web", c.Nodes[0].Name)
	if err := s.tryCreate(t.Context(), web); err == nil || !strings.Contains(err.Error(), `violates PodSecurity "restricted`) {
		t.Fatalf("a pod with istio-init: %v", err)
	}
	s.kubectl(t, "", "label", "namespace", s.name, "capture-cni.io/admission=enforce")
	eventually(t, func() error { return s.tryCreate(t.Context(), web) })
	s.ready(t, web)
	s.hasNoCapability(t, "web")
	s.isCaptured(t, "web")
}

// TestIstioInitValidates has the policy put validation in istio-init's place. A
// pod is ready only after its init containers said yes.
func TestIstioInitValidates(t *testing.T) {
	install(t, "admission.istioInit.enabled=true", "admission.istioInit.replaceBy=validate", "admission.identity.enabled=true")
	s := newSpace(t, restricted, cluster.InjectedWithInit)
	s.kubectl(t, "", "label", "namespace", s.name, "capture-cni.io/admission=enforce")
	web := server("web", c.Nodes[0].Name)
	web.Spec.SecurityContext.RunAsGroup = web.Spec.SecurityContext.RunAsUser // for the policy identity
	// The API server may still go by the last test's policy.
	eventually(t, func() error {
		out, err := c.Kubectl(t.Context(), encoded(t, web), "--namespace", s.name, "create", "--dry-run=server", "--filename=-", "-o", "json")
		if err == nil && !strings.Contains(out, "capture-cni-validate") {
			err = fmt.Errorf("validation is not put in: %s", out)
		}
		return err
	})
	s.create(t, web)
	s.ready(t, web)
	s.isCaptured(t, "web")
	var names []string
	for _, container := range s.get(t, "web").Spec.InitContainers {
		names = append(names, container.Name)
	}
	if want := []string{"capture-cni-validate", "istio-validation", "istio-proxy"}; !slices.Equal(names, want) {
		t.Errorf("the init containers are %q, want %q", names, want)
	}
	for container, want := range map[string]string{"capture-cni-validate": "outbound IPv4: captured", "istio-validation": "inbound IPv4: captured"} {
		if said := s.kubectl(t, "", "logs", "web", "--container", container); !strings.Contains(said, want) {
			t.Errorf("%s says %q", container, said)
		}
	}
}
