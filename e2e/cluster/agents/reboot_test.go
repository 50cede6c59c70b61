// SPDX-License-Identifier: Apache-2.0

package agents

import (
	"fmt"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
)

// TestReboot boots all nodes without their agents. Their pods start again,
// captured or not as deploy/reference/windows.md says.
func TestReboot(t *testing.T) {
	t.Cleanup(func() { c.UninstallChart(t) }) // auto keeps the mode that an earlier agent chose
	for _, tt := range []struct {
		name      string
		settings  []string
		rewritten bool // the primary's installer restores its own list before the runtime starts
		lost      bool // the entry, on nodes without drop-ins
	}{
		{"auto", nil, false, false},
		{"auto and a list rewritten", nil, true, true},
		{"owned and a list rewritten", []string{"mode=owned"}, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c.InstallChart(t, tt.settings...)
			n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
			var pods []*corev1.Pod
			for _, node := range c.Nodes {
				pods = append(pods, suite.Server("web-"+node.Name, node.Name))
			}
			n.Run(t, pods...)
			removeAgents(t)
			before := map[string]string{}
			for i, node := range c.Nodes {
				n.ExpectCaptured(t, pods[i].Name)
				sandbox, err := n.Sandbox(t.Context(), pods[i].Name)
				suite.Check(t, err)
				before[node.Name] = sandbox.ID
			}
			for _, node := range c.Nodes {
				primary, err := os.ReadFile(node.Disk("/etc/cni/net.d/" + cluster.NetworkConf))
				suite.Check(t, err)
				suite.Check(t, node.Halt())
				if tt.rewritten {
					primary = []byte(node.PrimaryList())
				}
				suite.Check(t, os.WriteFile(node.Disk("/etc/cni/net.d/"+cluster.NetworkConf), primary, 0o644))
			}
			for _, node := range c.Nodes {
				suite.Check(t, node.Boot(t.Context()))
			}
			for i, node := range c.Nodes {
				suite.Eventually(t, func() error {
					sandbox, err := n.Sandbox(t.Context(), pods[i].Name)
					if err == nil && sandbox.ID == before[node.Name] {
						err = fmt.Errorf("%s still has the sandbox from before the boot", node.Name)
					}
					return err
				})
				if !tt.lost || node.Runtime == cluster.Containerd2 {
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
