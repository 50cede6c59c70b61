// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestRemoval cleans the nodes and then uninstalls the chart: new pods start
// without the plugin, and the DEL of old ones succeeds.
func TestRemoval(t *testing.T) {
	c.InstallChart(t)
	n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
	var old, later []*corev1.Pod
	for _, node := range c.Nodes {
		old = append(old, suite.Server("old-"+node.Name, node.Name), suite.Unmeshed(suite.Server("old-plain-"+node.Name, node.Name)))
		later = append(later, suite.Server("later-"+node.Name, node.Name))
	}
	n.Run(t, old...)
	c.UninstallChart(t)
	for _, node := range c.Nodes {
		for _, path := range []string{"/etc/cni/net.d/podnet/capture-cni.conf", "/var/lib/capture-cni/kubeconfig", "/var/lib/capture-cni/token"} {
			if _, err := os.Stat(node.Path(path)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s still has %s: %v", node.Name, path, err)
			}
		}
		if primary, err := os.ReadFile(node.Path("/etc/cni/net.d/" + cluster.NetworkConf)); err != nil || string(primary) != node.PrimaryList() {
			t.Errorf("the primary's list of %s is not restored: %v\n%s", node.Name, err, primary)
		}
		expectPlugin(t, node, false)
	}
	n.Run(t, later...)
	for _, pod := range later {
		if rules := n.Rules(t, pod.Name); rules.Backend != "" {
			t.Errorf("%s has the rules %+v", pod.Name, rules)
		}
	}
	n.Delete(t, append(old, later...)...)
}

// TestUninstallAlone uninstalls the chart without cleaning the nodes: meshed pods start by
// the token on the node. Without the plugin's account they wait until the next
// installation, and other pods start.
func TestUninstallAlone(t *testing.T) {
	c.InstallChart(t, suite.ShortLookup)
	n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
	node := c.Nodes[0]
	old := suite.Server("old", node.Name)
	n.Run(t, old)
	lab.Check(t, c.Uninstall(t.Context()))
	c.Installed = nil
	byToken := suite.Server("by-token", node.Name)
	n.Run(t, byToken)
	n.ExpectCaptured(t, "by-token")
	deletePermission(t)
	meshed, plain := suite.Server("meshed", node.Name), suite.Unmeshed(suite.Server("plain", node.Name))
	n.Create(t, meshed, plain)
	n.WaitReady(t, plain)
	n.ExpectNoSandbox(t, "meshed", "/var/lib/capture-cni/token")
	n.Delete(t, old, byToken, plain)
	c.InstallChart(t)
	n.WaitReady(t, meshed)
	n.ExpectCaptured(t, "meshed")
}

// deletePermission deletes what an uninstallation leaves of the plugin's account. Without
// the binding the API server refuses the token at once: it remembers for 10 s that the
// token of an account was valid.
func deletePermission(t *testing.T) {
	t.Helper()
	c.MustKubectl(t, "delete", "clusterrolebinding/capture-cni")
	c.MustKubectl(t, "--namespace", cluster.Namespace, "delete", "serviceaccount/capture-cni")
}

// TestAbsentRefuses expects agents not to clean a node on which meshed pods run.
func TestAbsentRefuses(t *testing.T) {
	c.InstallChart(t)
	n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
	pod := suite.Server("web", c.Nodes[0].Name)
	n.Run(t, pod)
	settings := append(slices.Clone(c.Installed), "state=absent")
	c.Installed = nil
	_, err := c.Helm(t.Context(), "upgrade", cluster.Namespace, "../../../deploy/chart", "--namespace", cluster.Namespace, "--reuse-values", "--set", "state=absent")
	lab.Check(t, err)
	lab.Eventually(t, func() error {
		logs, err := c.Kubectl(t.Context(), "", "--namespace", cluster.Namespace, "logs", "daemonset/capture-cni-node", "--all-pods", "--tail=50")
		if err == nil && suite.LineWith(logs, "meshed pods still run on the node", n.Name+"/web") == "" {
			err = errors.New("no agent names the pod that keeps it: " + logs)
		}
		return err
	})
	n.ExpectCaptured(t, "web")
	another := suite.Server("another", c.Nodes[0].Name)
	n.Run(t, another)
	n.ExpectCaptured(t, "another")
	c.Installed = settings
}
