// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
)

// TestUserNamespace captures a pod with a user namespace of its own, which Debian's
// runc does not support.
func TestUserNamespace(t *testing.T) {
	t.Parallel()
	c.InstallChart(t)
	n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
	no := false
	pod := suite.Server("web", c.Nodes[0].Name)
	pod.Spec.HostUsers = &no
	n.Run(t, pod, suite.NewPod("another", c.Nodes[1].Name, "pause"))
	n.ExpectCaptured(t, "web")
	v4, _ := n.Addresses(t, "web")
	if got := suite.Names(n.Ask(t, "another", "tcp", suite.Address(v4, 8080))); got != "another/outbound web/inbound web/app" {
		t.Errorf("the hops are %s", got)
	}
	status := n.Kubectl(t, "", "exec", "web", "--container", "app", "--", "/apps", "status")
	_, root, _ := strings.Cut(status, "UidMap:")
	if fields := strings.Fields(root); len(fields) != 3 || fields[1] == "0" {
		t.Errorf("the pod has no user namespace of its own: %s", status)
	}
}
