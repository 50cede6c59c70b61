// SPDX-License-Identifier: Apache-2.0

package agents

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestRunDirectoryDeleted deletes the directory below /run on all nodes, while agents,
// guards and captured pods run. Agents and guards end, and the kubelets start them again
// with new directories: the guards repair, pods start captured, and old ones end.
func TestRunDirectoryDeleted(t *testing.T) {
	c.InstallChart(t, frequentRounds...)
	n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
	var before, after []*corev1.Pod
	for _, node := range c.Nodes {
		before, after = append(before, suite.Server("before-"+node.Name, node.Name)), append(after, suite.Server("after-"+node.Name, node.Name))
	}
	n.Run(t, before...)
	restarts := containerRestarts(t)
	for _, node := range c.Nodes {
		lab.Eventually(t, func() error { // meanwhile, the agent may create a socket
			return node.Command(t.Context(), "rm", "-rf", "/run/capture-cni").Run()
		})
	}
	lab.Eventually(t, func() error {
		now := containerRestarts(t)
		for container, count := range restarts {
			if now[container] <= count {
				return fmt.Errorf("container %s was not started again", container)
			}
		}
		return nil
	})
	for i, node := range c.Nodes {
		suite.WaitAgentReady(t, node)
		nft(t, n, before[i].Name, "delete", "table", "inet", "capture-cni")
		pod := n.Get(t, before[i].Name)
		lab.Eventually(t, func() error { return n.CheckCaptured(t.Context(), pod) })
	}
	n.Run(t, after...)
	for _, pod := range after {
		n.ExpectCaptured(t, pod.Name)
	}
	n.Delete(t, before...)
}

// containerRestarts returns how often each container of the agents was started again.
func containerRestarts(t *testing.T) map[string]int {
	t.Helper()
	const each = `{range .items[*]}{@.metadata.name}{range @.status.containerStatuses[*]} {.name}={.restartCount}{end}{"\n"}{end}`
	counts := map[string]int{}
	for line := range strings.Lines(kubectl(t, "get", "pods", "-o", "jsonpath="+each)) {
		fields := strings.Fields(line)
		for _, container := range fields[min(1, len(fields)):] {
			name, count, _ := strings.Cut(container, "=")
			number, err := strconv.Atoi(count)
			lab.Check(t, err)
			counts[fields[0]+"/"+name] = number
		}
	}
	return counts
}
