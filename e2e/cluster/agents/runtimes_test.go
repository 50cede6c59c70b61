// SPDX-License-Identifier: Apache-2.0

package agents

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestRuntimesFail has all runtimes hang, and end, while a meshed pod loses its
// rules: each guard goes on with the pods that it knows, tells what it found, and
// repairs the pod once its runtime answers.
func TestRuntimesFail(t *testing.T) {
	for _, tt := range []struct {
		name       string
		begin, end func(t *testing.T, node *cluster.Node)
	}{
		{
			"hang",
			func(t *testing.T, node *cluster.Node) { lab.Check(t, node.PauseRuntime()) },
			func(t *testing.T, node *cluster.Node) { lab.Check(t, node.ResumeRuntime()) },
		},
		{
			"killed",
			func(t *testing.T, node *cluster.Node) { lab.Check(t, node.KillRuntime()) },
			func(t *testing.T, node *cluster.Node) {
				lab.Check(t, node.StartRuntime(context.WithoutCancel(t.Context())))
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c.InstallChart(t, frequentRounds...)
			n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
			var pods []*corev1.Pod
			for _, node := range c.Nodes {
				pods = append(pods, suite.Server("stays-"+node.Name, node.Name), suite.Server("breaks-"+node.Name, node.Name))
			}
			n.Run(t, pods...)
			for _, node := range c.Nodes {
				waitForGuard(t, node, `capture_cni_pods{mesh="istio",state="captured"} 2`)
			}
			var broken []cluster.Sandbox
			for _, node := range c.Nodes {
				sandbox, err := n.Sandbox(t.Context(), "breaks-"+node.Name)
				lab.Check(t, err)
				broken = append(broken, sandbox)
			}

			var ends []func()
			for i, node := range c.Nodes {
				tt.begin(t, node)
				ends = append(ends, once(t, func() { tt.end(t, node) }))
				nftIn(t, broken[i], "delete", "table", "inet", "capture-cni")
			}
			for i, node := range c.Nodes {
				waitForGuard(t, node, `capture_cni_pods{mesh="istio",state="captured"} 1`, `capture_cni_pods{mesh="istio",state="uncaptured"} 1`)
				if rules := suite.Rules(t, broken[i]); rules.Backend != "" {
					t.Errorf("the guard of %s repairs a pod that may have ended", node.Name)
				}
			}
			for _, end := range ends {
				end()
			}
			for _, node := range c.Nodes {
				waitForGuard(t, node, `capture_cni_pods{mesh="istio",state="captured"} 2`)
				n.ExpectCaptured(t, "breaks-"+node.Name)
				later := suite.Server("later-"+node.Name, node.Name)
				n.Run(t, later)
				n.ExpectCaptured(t, later.Name)
			}
		})
	}
}

// waitForGuard waits until a node's guard has these metrics.
func waitForGuard(t *testing.T, node *cluster.Node, lines ...string) {
	t.Helper()
	lab.Eventually(t, func() error {
		status, body, err := suite.AskGuard(t.Context(), node, "/metrics")
		if err != nil || status != http.StatusOK {
			return fmt.Errorf("status %d: %w", status, err)
		}
		for _, line := range lines {
			if !strings.Contains(body, line+"\n") {
				return fmt.Errorf("the guard of %s does not say %q: %q", node.Name, line, podStates(body))
			}
		}
		return nil
	})
}

// podStates returns how many pods are in which state.
func podStates(metrics string) (states []string) {
	for line := range strings.Lines(metrics) {
		if strings.HasPrefix(line, "capture_cni_pods{") && !strings.HasSuffix(line, " 0\n") {
			states = append(states, strings.TrimSpace(line))
		}
	}
	return states
}
