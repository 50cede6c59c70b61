// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/cluster"
)

// TestUserNamespace captures a pod whose root is not the node's. Debian's runc
// knows no such pods.
func TestUserNamespace(t *testing.T) {
	t.Parallel()
	install(t)
	s := newSpace(t, restricted, cluster.Injected)
	no := false
	pod := server("web", c.Nodes[0].Name)
	pod.Spec.HostUsers = &no
	s.run(t, pod, newPod("another", c.Nodes[1].Name, "pause"))
	s.isCaptured(t, "web")
	v4, _ := s.addresses(t, "web")
	if got := names(s.ask(t, "another", "tcp", address(v4, 8080))); got != "another/outbound web/inbound web/app" {
		t.Errorf("on the way are %s", got)
	}
	status := s.kubectl(t, "", "exec", "web", "--container", "app", "--", "/apps", "status")
	_, root, _ := strings.Cut(status, "UidMap:")
	if fields := strings.Fields(root); len(fields) != 3 || fields[1] == "0" {
		t.Errorf("the pod has no user namespace of its own: %s", status)
	}
}
