// SPDX-License-Identifier: Apache-2.0

package agents

import (
	"fmt"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/lab"
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
	p.Expect(t, "explain --namespace "+n.Name+" pod/other", 0, "not in the mesh", "Next")
	p.Expect(t, "explain "+n.Name+"/none", 1, "no such pod runs")
	bad.Annotations["traffic.sidecar.istio.io/excludeInboundPorts"] = "http"
	n.Create(t, bad)
	p.Expect(t, "explain "+n.Name+"/bad", 1, "not started", "its ADD fails", `"http"`, "correct the annotations")
	p.Expect(t, "list --uncaptured --namespace "+n.Name, 0, "bad", "not started") // after a minute
	n.Delete(t, bad)
	p.Expect(t, "status --as system:serviceaccount:default:default", 2, "forbidden", "capture-cni-operator")
	kubectl(t, "create", "clusterrolebinding", "operator", "--clusterrole=capture-cni-operator", "--user=operator")
	kubectl(t, "create", "rolebinding", "operator", "--role=capture-cni-operator", "--user=operator")
	t.Cleanup(func() {
		kubectl(t, "delete", "clusterrolebinding", "operator")
		kubectl(t, "delete", "rolebinding", "operator")
	})
	p.Expect(t, "status --wait --as operator", 0, fmt.Sprintf("%d ready", len(c.Nodes)), "captured")
	removeAgents(t)
	p.Expect(t, "status", 1, "no agent", node.Name, "no DaemonSet selects the node any more")
	p.Expect(t, "explain "+n.Name+"/web", 1, "the agent of its node did not answer", "select it again")
}

// TestNodeDown asks about a node that is down, and about the node once it is up again.
func TestNodeDown(t *testing.T) {
	c.InstallChart(t)
	p := c.BuildPlugin(t)
	n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
	node := c.Nodes[1]
	n.Run(t, suite.Server("web", node.Name))
	p.Expect(t, "status --wait", 0, "captured")
	lab.Check(t, node.Halt())
	p.Expect(t, "status", 1, "1 faulty", node.Name, "the Node is not ready: Kubelet stopped posting node status", "next for "+node.Name+": kubectl describe node "+node.Name)
	p.Expect(t, "explain "+n.Name+"/web", 1, "web on node "+node.Name+": unknown", "the Node is not ready")
	lab.Check(t, node.Boot(t.Context()))
	p.Expect(t, "status --wait", 0, fmt.Sprintf("%d ready", len(c.Nodes)))
}

// TestAgentsThatFail leaves the agents in each state that scheduler, kubelet and the
// controller of DaemonSets leave a pod in: status names it, and --wait does not end. In the
// test's cluster all agents are replaced at once.
func TestAgentsThatFail(t *testing.T) {
	c.InstallChart(t)
	p := c.BuildPlugin(t)
	p.Expect(t, "status --wait", 0, fmt.Sprintf("%d ready", len(c.Nodes)))
	const waits = "status --wait --timeout 3s"
	installer := func(field, value string) string {
		return `{"spec": {"template": {"spec": {"containers": [{"name": "installer", "` + field + `": ` + value + `}]}}}}`
	}
	for _, broken := range []struct {
		patch string
		want  []string
	}{
		{installer("image", `"127.0.0.1:1/none:1"`), []string{"container installer: ErrImageNeverPull", "describe pod capture-cni-node-"}},
		{installer("resources", `{"requests": {"cpu": "1000"}}`), []string{"Pending: 0/", "Insufficient cpu", "describe pod capture-cni-node-"}},
		{installer("command", `["/capture-cni-node", "nothing"]`), []string{"container installer: CrashLoopBackOff", "logs capture-cni-node-"}},
	} {
		kubectl(t, "patch", "daemonset", "capture-cni-node", "--patch", broken.patch)
		p.Expect(t, waits, 1, append(broken.want, fmt.Sprintf("%d faulty", len(c.Nodes)), fmt.Sprintf("%[1]d desired, %[1]d updated, 0 ready, %[1]d unavailable", len(c.Nodes)))...)
		p.Expect(t, "test", 2, "agents are not ready: DaemonSet capture-cni-node: ")
		kubectl(t, "rollout", "undo", "daemonset/capture-cni-node")
		p.Expect(t, "status --wait", 0, fmt.Sprintf("%d ready", len(c.Nodes)))
	}
	kubectl(t, "patch", "daemonset", "capture-cni-node", "--patch", `{"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": null}, "template": {"metadata": {"annotations": {"changed": "yes"}}}}}`)
	p.Expect(t, waits, 1, fmt.Sprintf("%d outdated", len(c.Nodes)), "updateStrategy is OnDelete", "delete pod capture-cni-node-")
	kubectl(t, "create", "quota", "none", "--hard=pods=0")
	t.Cleanup(func() { kubectl(t, "delete", "quota", "none", "--ignore-not-found") })
	kubectl(t, "delete", "pods", "--all")
	p.Expect(t, waits, 1, fmt.Sprintf("%d no agent", len(c.Nodes)), "selects the node, and has no pod there", "describe daemonset capture-cni-node")
	kubectl(t, "delete", "quota", "none")
	p.Expect(t, "status --wait", 0, fmt.Sprintf("%d ready", len(c.Nodes)))
	c.InstallChart(t) // which rolls again
}
