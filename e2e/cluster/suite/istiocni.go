// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"os"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// ReplaceByIstioCNI uninstalls the chart and installs Istio's CNI plugin by its own. The
// nodes have the primary's own lists and no labels when the test has ended.
func (c *Suite) ReplaceByIstioCNI(t *testing.T) {
	t.Helper()
	c.UninstallChart(t)
	if !c.Istio {
		lab.Check(t, c.LoadIstioImages(t.Context(), "install-cni"))
	}
	for _, node := range c.Nodes {
		t.Cleanup(func() {
			c.MustKubectl(t, "label", "node", node.Name, "capture-cni-", "istio-cni-")
			if err := os.WriteFile(node.Path("/etc/cni/net.d/"+cluster.NetworkConf), []byte(node.PrimaryList()), 0o600); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		if err := c.UninstallIstioCNI(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	lab.Check(t, c.InstallIstioCNI(t.Context()))
	for _, node := range c.Nodes {
		WaitForLastPlugin(t, node, "istio-cni")
	}
}
