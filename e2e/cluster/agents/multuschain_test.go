// SPDX-License-Identifier: Apache-2.0

package agents

import (
	"context"
	"fmt"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
)

// TestMultusChainReboot boots a node without its agent, whose chain is gone then. With the
// agent's line, systemd-tmpfiles makes the entry before Multus starts, and the node's pod
// is captured; without it, the pod starts uncaptured.
func TestMultusChainReboot(t *testing.T) {
	c.UninstallChart(t)
	t.Cleanup(func() { lab.Check(t, c.StopThickMultus(context.Background())) })
	lab.Check(t, c.StartThickMultus(t.Context(), c.Nodes...))
	t.Cleanup(func() { c.UninstallChart(t) })
	node := c.Nodes[0]
	lab.Eventually(t, func() error {
		network, err := suite.LoadedNetwork(t.Context(), node)
		if err == nil && network.Name != "multus-cni-network" {
			err = fmt.Errorf("the runtime has loaded the network %s", network.Name)
		}
		return err
	})
	for _, tt := range []struct {
		name, directory string
		captured        bool
	}{{"with the line", "/etc/tmpfiles.d", true}, {"without it", "none", false}} {
		t.Run(tt.name, func(t *testing.T) {
			c.InstallChart(t, "mode=multus-chain", "guard.enabled=false", "paths.tmpfilesDir="+tt.directory)
			n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
			pod := suite.Server("web", node.Name)
			n.Run(t, pod)
			n.ExpectCaptured(t, pod.Name)
			before, err := n.Sandbox(t.Context(), pod.Name)
			lab.Check(t, err)
			removeAgents(t)
			lab.Check(t, node.Halt())
			lab.Check(t, node.Boot(t.Context())) // its runtime starts no pod without the daemon of Multus
			if out, err := node.Command(t.Context(), "systemd-tmpfiles", "--create", "--remove", "--boot", "--prefix="+cluster.MultusChainDir).CombinedOutput(); err != nil {
				t.Fatalf("systemd-tmpfiles: %v: %s", err, out)
			}
			lab.Check(t, c.StartThickMultus(t.Context(), node))
			lab.Eventually(t, func() error {
				sandbox, err := n.Sandbox(t.Context(), pod.Name)
				if err == nil && sandbox.ID == before.ID {
					err = fmt.Errorf("%s still has the sandbox from before the boot", pod.Name)
				}
				return err
			})
			n.WaitReady(t, pod)
			if tt.captured {
				n.ExpectCaptured(t, pod.Name)
			} else if rules := n.Rules(t, pod.Name); rules != (netfilter.State{}) {
				t.Errorf("after a boot without an agent and without the line, the pod has the rules %+v", rules)
			}
			restoreAgents(t)
			another := suite.Server("another", node.Name)
			n.Run(t, another)
			n.ExpectCaptured(t, another.Name)
			n.Delete(t, pod, another)
		})
	}
}
