// SPDX-License-Identifier: Apache-2.0

package agents

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// frequentRounds are settings with which the guard checks every 2 s.
var frequentRounds = []string{"guard.round=2s"}

// TestGuardFindsEarlyPods creates meshed pods before any agent runs: the guard
// finds and repairs each of them soon after it has started.
func TestGuardFindsEarlyPods(t *testing.T) {
	c.UninstallChart(t)
	n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
	var pods []*corev1.Pod
	for i := range 20 {
		pods = append(pods, suite.Server(fmt.Sprintf("web-%d", i), c.Nodes[i%len(c.Nodes)].Name))
	}
	n.Run(t, pods...)
	for _, pod := range pods {
		if rules := n.Rules(t, pod.Name); rules.Backend != "" {
			t.Fatalf("%s has the rules %+v", pod.Name, rules)
		}
	}
	injected := n.List(t)
	c.InstallChart(t, frequentRounds...)
	ready := time.Now()
	lab.Eventually(t, func() error {
		captured := 0
		for _, node := range c.Nodes {
			here, err := countCaptured(t.Context(), node, n, injected)
			if err != nil {
				return err
			}
			captured += here
		}
		if captured != len(pods) {
			return fmt.Errorf("%d of %d pods are captured", captured, len(pods))
		}
		return nil
	})
	t.Logf("all repaired %s after the agents were ready", time.Since(ready).Round(100*time.Millisecond))
}

// countCaptured counts those of a namespace's pods that a node has captured. Rules that
// are not those that a pod asks for are an error.
func countCaptured(ctx context.Context, node *cluster.Node, n suite.Namespace, pods map[string]*corev1.Pod) (captured int, err error) {
	sandboxes, err := node.Sandboxes(ctx)
	if err != nil {
		return 0, err
	}
	for _, found := range sandboxes {
		if found.Namespace != n.Name {
			continue
		}
		rules, err := suite.ReadRules(found)
		if err != nil {
			return 0, err
		}
		if rules.Backend == "" {
			continue
		}
		if err := suite.CheckCaptured(ctx, found, pods[found.Name]); err != nil {
			return 0, err
		}
		captured++
	}
	return captured, nil
}

// TestGuardRepairs changes and deletes the rules of a running pod: the guard
// restores them, and open connections survive. A connection through the proxy
// can't survive the deletion of its rules: without redirection, the pod answers
// its next packet with a reset.
func TestGuardRepairs(t *testing.T) {
	c.InstallChart(t, frequentRounds...)
	n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
	web, client := suite.Server("web", c.Nodes[0].Name), suite.NewPod("client", c.Nodes[1].Name, "pause")
	n.Run(t, suite.WithEcho(web), suite.Unmeshed(client))

	proxied, alive := n.Hold(t, "client", "web")
	if proxied != "web/inbound" {
		t.Fatalf("the hops are %q", proxied)
	}
	nft(t, n, "web", "insert", "rule", "inet", "capture-cni", "nat_PREROUTING", "return")
	waitForRepair(t, n, "client", "web")
	alive()

	lab.Eventually(t, func() error {
		nft(t, n, "web", "delete", "table", "inet", "capture-cni")
		if proxied, alive = n.Hold(t, "client", "web"); proxied != "" {
			return errors.New("the guard was faster each time")
		}
		return nil
	})
	waitForRepair(t, n, "client", "web")
	alive()
}

// waitForRepair waits until connections between two pods are captured again.
func waitForRepair(t *testing.T, n suite.Namespace, from, to string) {
	t.Helper()
	v4, _ := n.Addresses(t, to)
	began := time.Now()
	lab.Eventually(t, func() error {
		hops, err := n.TryAsk(t.Context(), from, "tcp", suite.Address(v4, 8080))
		if got := suite.Names(hops); err == nil && got != to+"/inbound "+to+"/app" {
			err = fmt.Errorf("the hops are %s", got)
		}
		return err
	})
	t.Logf("repaired within %s", time.Since(began).Round(100*time.Millisecond))
}

// TestGuardReports changes a running pod's annotations: the guard reports it, and
// the pod is captured as before, also after a repair.
func TestGuardReports(t *testing.T) {
	c.InstallChart(t, frequentRounds...)
	n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
	n.Run(t, suite.Server("loosened", c.Nodes[0].Name))
	before, created := n.Rules(t, "loosened"), n.Get(t, "loosened")
	expectExplained(t, n, "loosened", "state        captured")
	lab.Eventually(t, func() error { // the agent receives the record after the plugin's answer
		if said := explain(t, n, "loosened"); !strings.Contains(said, ": captured by nftables") {
			return fmt.Errorf("its last ADD is not explained:\n%s", said)
		}
		return nil
	})
	n.Kubectl(t, "", "annotate", "--overwrite", "pod", "loosened", "traffic.sidecar.istio.io/includeOutboundIPRanges=")
	waitForGuardLog(t, n, "loosened", "state=changed")
	expectExplained(t, n, "loosened", `includeOutboundIPRanges: "*"; now ""`)
	if after := n.Rules(t, "loosened"); after != before {
		t.Errorf("it had the rules %+v and has %+v", before, after)
	}
	nft(t, n, "loosened", "delete", "table", "inet", "capture-cni")
	waitForGuardLog(t, n, "loosened", "found=uncaptured")
	waitForEvent(t, n, "loosened", "CaptureRepaired", "is captured now")
	lab.Eventually(t, func() error { return n.CheckCaptured(t.Context(), created) })
}

// expectExplained expects a text in the guard's explanation of a pod.
func expectExplained(t *testing.T, n suite.Namespace, pod, want string) {
	t.Helper()
	if out := explain(t, n, pod); !strings.Contains(out, want) {
		t.Errorf("the explanation lacks %s:\n%s", want, out)
	}
}

// explain returns the first node's guard's explanation of a pod.
func explain(t *testing.T, n suite.Namespace, pod string) string {
	t.Helper()
	return kubectl(t, "exec", agentOn(t, c.Nodes[0]), "--container=guard", "--", "/capture-cni-node", "explain", n.Name+"/"+pod)
}

// waitForGuardLog waits for a line of a guard's log about a pod.
func waitForGuardLog(t *testing.T, n suite.Namespace, pod, what string) {
	t.Helper()
	lab.Eventually(t, func() error {
		logs, err := c.Kubectl(t.Context(), "", "--namespace", cluster.Namespace, "logs", "daemonset/capture-cni-node", "--all-pods", "--container=guard", "--tail=100")
		if err != nil {
			return err
		}
		for _, line := range strings.Split(logs, "\n") {
			if strings.Contains(line, n.Name+"/"+pod) && strings.Contains(line, what) {
				return nil
			}
		}
		return fmt.Errorf("no guard's log has %q of %s:\n%s", what, pod, logs)
	})
}

// nft runs nft in a pod's network namespace.
func nft(t *testing.T, n suite.Namespace, pod string, args ...string) {
	t.Helper()
	sandbox, err := n.Sandbox(t.Context(), pod)
	lab.Check(t, err)
	nftIn(t, sandbox, args...)
}

// nftIn runs nft in a sandbox, also while the runtime does not answer.
func nftIn(t *testing.T, sandbox cluster.Sandbox, args ...string) {
	t.Helper()
	host, err := sandbox.Host()
	lab.Check(t, err)
	defer host.NetNS.Close()
	lab.Check(t, host.Do(func() error {
		out, err := exec.CommandContext(t.Context(), "nft", args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("nft %s: %w: %s", strings.Join(args, " "), err, out)
		}
		return nil
	}))
}

// slowEnd is a plugin in front of the node's own that makes each DEL take long, after that
// of capture-cni.
const slowEnd = `#!/bin/sh
[ "$CNI_COMMAND" = DEL ] && sleep 5
exec /opt/cni/bin/ptp-itself
`

// TestPodsEnd ends pods slowly: for some rounds of the guard, a pod has no rules and the
// runtime has not ended its sandbox yet. The guards repair none, and report none.
func TestPodsEnd(t *testing.T) {
	c.InstallChart(t, frequentRounds...)
	n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
	var pods []*corev1.Pod
	for _, node := range c.Nodes {
		ptp := node.Path("/opt/cni/bin/ptp")
		lab.Check(t, os.Link(ptp, ptp+"-itself"))
		t.Cleanup(func() { lab.Check(t, os.Rename(ptp+"-itself", ptp)) })
		lab.Check(t, lab.WriteProgram(ptp+"-slow", []byte(slowEnd)))
		lab.Check(t, os.Rename(ptp+"-slow", ptp)) // CRI-O drops a list while one of its plugins is missing
		pods = append(pods, suite.Server("ends-"+node.Name, node.Name))
	}
	n.Run(t, pods...)
	c.ExpectStates(t, map[string]int{"captured": len(pods)})
	before := repairs(t)
	n.Delete(t, pods...)
	if after := repairs(t); !maps.Equal(before, after) {
		t.Errorf("repairs: %v, want %v as before", after, before)
	}
}

// repairs returns what the guard of each node says of its repairs.
func repairs(t *testing.T) map[string]string {
	t.Helper()
	lines := map[string]string{}
	for _, node := range c.Nodes {
		_, metrics, err := suite.AskGuard(t.Context(), node, "/metrics")
		lab.Check(t, err)
		lines[node.Name] = suite.LineWith(metrics, "capture_cni_pod_repairs_total", `"done"`)
	}
	return lines
}
