// SPDX-License-Identifier: Apache-2.0

package agents

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
)

// TestFleet asks kubectl capture-cni about a good fleet, about pods of every kind, about
// nodes without an agent, and without permissions.
func TestFleet(t *testing.T) {
	c.InstallChart(t)
	p := c.BuildPlugin(t)
	n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
	node := c.Nodes[0]
	web, other, bad := suite.Server("web", node.Name), suite.Unmeshed(suite.Server("other", node.Name)), suite.Server("bad", node.Name)
	n.Run(t, web, other)
	p.Expect(t, "status --wait", 0, fmt.Sprintf("%d ready", len(c.Nodes)), "captured")
	p.Expect(t, "explain "+n.Name+"/web", 0, "web on node "+node.Name+": captured", "container guard", "kernel       backend nftables", "last ADD")
	p.Expect(t, "explain "+n.Name+"/other", 0, "not in the mesh", "Next")
	p.Expect(t, "explain "+n.Name+"/none", 1, "no such pod exists")
	bad.Annotations["traffic.sidecar.istio.io/excludeInboundPorts"] = "http"
	n.Create(t, bad)
	p.Expect(t, "explain "+n.Name+"/bad", 1, "not started", "its ADD fails", `"http"`, "correct the annotations")
	p.Expect(t, "list --uncaptured --namespace "+n.Name, 0, "bad", "not started") // after a minute
	n.Delete(t, bad)
	p.Expect(t, "status --as system:serviceaccount:default:default", 2, "forbidden", "capture-cni-operator")
	removeAgents(t)
	p.Expect(t, "status", 1, "no agent", node.Name)
}

// TestNodeDown asks about a node that is down, whose Lease is as old as after some time, and
// about the node once it is up again.
func TestNodeDown(t *testing.T) {
	c.InstallChart(t)
	p := c.BuildPlugin(t)
	n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
	node := c.Nodes[1]
	n.Run(t, suite.Server("web", node.Name))
	p.Expect(t, "status --wait", 0, "captured")
	suite.Check(t, node.Halt())
	old := time.Now().Add(-time.Hour).UTC().Format(metav1.RFC3339Micro)
	kubectl(t, "patch", "lease", node.Name, "--type=merge", "--patch", `{"spec": {"renewTime": "`+old+`"}}`)
	p.Expect(t, "status", 1, "1 stale", node.Name, "has not reported for 1h", "next for "+node.Name+": kubectl get node "+node.Name)
	p.Expect(t, "explain "+n.Name+"/web", 1, "web on node "+node.Name+": unknown", "stale")
	suite.Check(t, node.Boot(t.Context()))
	p.Expect(t, "status --wait", 0, fmt.Sprintf("%d ready", len(c.Nodes)))
}
