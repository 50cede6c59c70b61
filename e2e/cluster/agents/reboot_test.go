// SPDX-License-Identifier: Apache-2.0

package agents

import (
	"fmt"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
)

// TestReboot boots all nodes without their agents. Their pods start again,
// captured or not as deploy/reference/windows.md says. With agents, the guard captures
// those that started before.
func TestReboot(t *testing.T) {
	t.Cleanup(func() { c.UninstallChart(t) }) // auto keeps the mode that an earlier agent chose
	for _, tt := range []struct {
		name      string
		settings  []string
		rewritten bool // the primary's installer restores its own list: flannel's at each boot, kube-router's never
		lost      bool // the entry, on nodes without drop-ins
		agents    bool
	}{
		{"auto", nil, false, false, false},
		{"auto and a list rewritten", nil, true, true, false},
		{"owned and a list rewritten", []string{"mode=owned"}, true, false, false},
		{"agents and a list rewritten", nil, true, false, true},
	} {
		if c.Primary != cluster.Ptp && tt.rewritten != (c.Primary == cluster.Flannel) {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			c.InstallChart(t, tt.settings...)
			n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
			var pods []*corev1.Pod
			for _, node := range c.Nodes {
				pods = append(pods, suite.Server("web-"+node.Name, node.Name))
			}
			n.Run(t, pods...)
			if !tt.agents {
				removeAgents(t)
			}
			before := map[string]string{}
			for i, node := range c.Nodes {
				n.ExpectCaptured(t, pods[i].Name)
				sandbox, err := n.Sandbox(t.Context(), pods[i].Name)
				lab.Check(t, err)
				before[node.Name] = sandbox.ID
			}
			for _, node := range c.Nodes {
				lab.Check(t, node.Halt())
				if tt.rewritten && c.Primary == cluster.Ptp {
					lab.Check(t, os.WriteFile(node.Disk(c.Primary.List()), []byte(node.PrimaryList()), 0o644))
				}
			}
			for _, node := range c.Nodes {
				lab.Check(t, node.Boot(t.Context()))
			}
			for i, node := range c.Nodes {
				lab.Eventually(t, func() error {
					sandbox, err := n.Sandbox(t.Context(), pods[i].Name)
					if err == nil && sandbox.ID == before[node.Name] {
						err = fmt.Errorf("%s still has the sandbox from before the boot", node.Name)
					}
					return err
				})
				if tt.agents {
					lab.Eventually(t, func() error { return n.CheckCaptured(t.Context(), n.Get(t, pods[i].Name)) })
				} else if !tt.lost || node.Runtime == cluster.Containerd2 {
					n.ExpectCaptured(t, pods[i].Name)
				} else if rules := n.Rules(t, pods[i].Name); rules != (netfilter.State{}) {
					t.Errorf("after a boot of %s without an agent its pod has the rules %+v, want none", node.Name, rules)
				}
			}
			restoreAgents(t)
			for _, node := range c.Nodes {
				pod := suite.Server("new-"+node.Name, node.Name)
				n.Run(t, pod)
				n.ExpectCaptured(t, pod.Name)
			}
		})
	}
}
