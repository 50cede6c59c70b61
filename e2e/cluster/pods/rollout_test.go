// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestRollout installs the chart. Each agent chooses the mode that its runtime
// supports, and is ready only when the runtime has loaded the entry.
func TestRollout(t *testing.T) {
	c.UninstallChart(t)
	c.InstallChart(t)
	for _, node := range c.Nodes {
		primary, err := os.ReadFile(node.Path(c.Primary.List()))
		lab.Check(t, err)
		_, err = os.Stat(node.Path(c.Primary.DropIn("capture-cni.conf")))
		switch dropIn := err == nil; {
		case node.Runtime == cluster.Containerd2 && (!dropIn || strings.Contains(string(primary), "capture-cni")):
			t.Errorf("%s: no drop-in, or the primary's list is edited:\n%s", node.Name, primary)
		case node.Runtime != cluster.Containerd2 && (dropIn || !strings.Contains(string(primary), `"capture-cni"`)):
			t.Errorf("%s: a drop-in, which its runtime does not read or does not report, or the primary's list lacks the entry:\n%s", node.Name, primary)
		}
		expectPlugin(t, node, true)
	}
	out, err := c.Kubectl(t.Context(), "", "--namespace", cluster.Namespace, "get", "pods", "-o", "jsonpath={.items[*].status.containerStatuses[*].restartCount}")
	lab.Check(t, err)
	if strings.Trim(out, "0 ") != "" {
		t.Errorf("agents were restarted: %s", out)
	}
}

// TestNotReady has a runtime that can't load its configuration: the agent is not
// ready meanwhile.
func TestNotReady(t *testing.T) {
	c.InstallChart(t)
	node := c.Nodes[0]
	broken := node.Path("/etc/cni/net.d/00-broken.conflist")
	t.Cleanup(func() { _ = os.Remove(broken) })
	ready := func(want string) func() error {
		return func() error {
			out, err := c.Kubectl(t.Context(), "", "--namespace", cluster.Namespace, "get", "pods", "--field-selector", "spec.nodeName="+node.Name,
				"-o", `jsonpath={.items[*].status.containerStatuses[?(@.name=="installer")].ready}`)
			if err != nil || out != want {
				return fmt.Errorf("ready: %s, want %s: %w", out, want, err)
			}
			return nil
		}
	}
	lab.Check(t, os.WriteFile(broken, []byte(`{"cniVersion": "1.0.0", "name": "broken", "plugins": []}`), 0o600))
	lab.Eventually(t, ready("false"))
	lab.Check(t, os.Remove(broken))
	lab.Eventually(t, ready("true"))
}

// expectPlugin checks whether a node's runtime calls the plugin.
func expectPlugin(t *testing.T, node *cluster.Node, want bool) {
	t.Helper()
	network, err := suite.LoadedNetwork(t.Context(), node)
	lab.Check(t, err)
	if slices.Contains(network.Plugins, "capture-cni") != want {
		t.Errorf("%s calls the plugins %q; want capture-cni among them: %v", node.Name, network.Plugins, want)
	}
}
