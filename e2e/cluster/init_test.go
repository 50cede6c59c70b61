// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
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
	eventually(t, back, func() error { return s.tryCreate(t.Context(), web) })
	s.ready(t, web)
	s.hasNoCapability(t, "web")
	s.isCaptured(t, "web")
}
