// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/cluster"
)

// TestUserNamespace captures a pod whose root is not the node's. Where the
// runtime has no such pods, it has to be the runtime that says so.
func TestUserNamespace(t *testing.T) {
	t.Parallel()
	install(t)
	s := newSpace(t, restricted, cluster.Injected)
	no := false
	pod := server("web", c.Nodes[0].Name)
	pod.Spec.HostUsers = &no
	s.create(t, pod)
	if _, err := c.Kubectl(t.Context(), "", "--namespace", s.name, "wait", "--for=condition=Ready", "--timeout=20s", "pod/web"); err == nil {
		s.isCaptured(t, "web")
		return
	}
	events := s.kubectl(t, "", "get", "events", "-o", "jsonpath={.items[*].message}")
	if strings.Contains(events, "capture-cni") || !strings.Contains(events, "user") {
		t.Errorf("the pod does not start, and not for lack of user namespaces: %s", events)
	}
	t.Logf("this runtime has no pods with user namespaces: %s", events)
}
