// SPDX-License-Identifier: Apache-2.0

package agents

import (
	"testing"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
)

// TestUpgrade rolls out another image and then another configuration of the
// agents, while pods start and stop.
func TestUpgrade(t *testing.T) {
	c.InstallChart(t)
	suite.Check(t, c.LoadAgentImage(t.Context(), "v2"))
	n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
	pods := suite.StartChurn(t, n)
	pods.Next(t)
	t.Cleanup(func() { c.Installed = nil })
	for _, settings := range [][]string{{"image.tag=v2", "maxUnavailable=1"}, {"image.tag=v2", "maxUnavailable=1", "netconf.logLevel=debug"}} {
		suite.Check(t, c.Install(t.Context(), settings...))
		pods.Next(t)
	}
	pods.End(t)
	for _, l := range pods.Lives() {
		if !l.Ours() {
			t.Errorf("a pod on %s: %v", l.Node, l.Fault)
		}
	}
}
