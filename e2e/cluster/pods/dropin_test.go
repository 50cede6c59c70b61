// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"os"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
)

// TestDropInWithCRIO sets the mode dropin where auto does not take it: CRI-O loads the
// drop-in, and forgets it when the entry is removed, though it watches the directory above
// alone.
func TestDropInWithCRIO(t *testing.T) {
	c.UninstallChart(t)
	defer c.UninstallChart(t)
	for _, node := range c.Nodes {
		if node.Runtime != cluster.CRIO {
			continue
		}
		c.InstallChart(t, "mode=dropin", `nodeSelector.kubernetes\.io/hostname=`+node.Name)
		expectPlugin(t, node, true)
		if primary, err := os.ReadFile(node.Path("/etc/cni/net.d/" + cluster.NetworkConf)); err != nil || string(primary) != node.PrimaryList() {
			t.Errorf("the primary's list of %s is edited: %v\n%s", node.Name, err, primary)
		}
		n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
		pod := suite.Server("web", node.Name)
		n.Run(t, pod)
		n.ExpectCaptured(t, pod.Name)
		n.Delete(t, pod)
		c.UninstallChart(t)
		suite.WaitForLastPlugin(t, node, "ptp")
	}
}
