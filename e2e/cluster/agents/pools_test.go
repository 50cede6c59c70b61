// SPDX-License-Identifier: Apache-2.0

package agents

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// poolOut is a pool for nodes that are taken out by a label.
const poolOut = `pools[0].name=out,pools[0].nodeSelector.capture-cni\.io/state=absent,pools[0].state=absent`

// TestNodeOutAndIn takes a node out by its label and in again, while pods start and end
// where the scheduler puts them. Captured pods keep their rules, and the node keeps its
// entry, until the last of them has ended; what is left then is what a purge would take.
// None that starts on any node is uncaptured, and none fails.
func TestNodeOutAndIn(t *testing.T) {
	c.InstallChart(t, poolOut)
	p := c.BuildPlugin(t)
	n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
	node := c.Nodes[0]
	label(t, node, "")
	old, plain := suite.Server("old", node.Name), suite.Unmeshed(suite.Server("plain", node.Name))
	n.Run(t, old, plain)
	end := startComing(t, n)

	const taint = "capture-cni.io/out"
	c.MustKubectl(t, "taint", "node", node.Name, taint+"=:NoSchedule")
	t.Cleanup(func() {
		_, _ = c.Kubectl(context.WithoutCancel(t.Context()), "", "taint", "node", node.Name, taint+"-")
	})
	label(t, node, "absent")
	p.Expect(t, "status", 1, node.Name, "meshed pods still run on the node", n.Name+"/old")
	later := suite.Server("later", node.Name) // bound to the node: no taint keeps it away
	n.Run(t, later)
	n.ExpectCaptured(t, "old")
	n.ExpectCaptured(t, "later")
	lab.Eventually(t, func() error { // those that the scheduler had put there
		for name, pod := range n.List(t) {
			if pod.Spec.NodeName == node.Name && strings.HasPrefix(name, "coming-") {
				return fmt.Errorf("%s still runs on %s", name, node.Name)
			}
		}
		return nil
	})
	n.Delete(t, old, later)
	p.Expect(t, "status --wait", 0, "1 removed", node.Name+": left on the node", "/opt/cni/bin/capture-cni")
	if got, want := filesOf(t, node), []string{"/opt/cni/bin/capture-cni", "/opt/cni/bin/capture-cni-lookup"}; !slices.Equal(got, want) {
		t.Errorf("%s has %q, want %q", node.Name, got, want)
	}
	if primary, err := os.ReadFile(node.Path("/etc/cni/net.d/" + cluster.NetworkConf)); err != nil || string(primary) != node.PrimaryList() {
		t.Errorf("the primary's list is not restored: %v\n%s", err, primary)
	}
	n.Delete(t, plain)
	another := suite.Unmeshed(suite.Server("another", node.Name))
	n.Run(t, another)
	bypassing := suite.Server("bypassing", node.Name)
	n.Run(t, bypassing)
	p.Expect(t, "status", 0, "new ones start there uncaptured unless something else captures them: "+node.Name)
	n.Delete(t, another, bypassing)

	label(t, node, "")
	if out, status := p.Run(t, "status", "--wait"); status != 0 || !strings.Contains(out, fmt.Sprintf("%d ready", len(c.Nodes))) { // not before the agent has changed
		t.Errorf("exit status %d: %s", status, out)
	}
	again := suite.Server("again", node.Name)
	n.Run(t, again)
	n.ExpectCaptured(t, "again")
	c.MustKubectl(t, "taint", "node", node.Name, taint+"-")
	end()
}

// label sets or removes the label by which a node is taken out.
func label(t *testing.T, node *cluster.Node, state string) {
	t.Helper()
	const key = "capture-cni.io/state"
	if state == "" {
		c.MustKubectl(t, "label", "node", node.Name, key+"-")
		return
	}
	c.MustKubectl(t, "label", "--overwrite", "node", node.Name, key+"="+state)
	t.Cleanup(func() { c.MustKubectl(t, "label", "node", node.Name, key+"-") })
}

// filesOf returns what capture-cni has on a node.
func filesOf(t *testing.T, node *cluster.Node) (found []string) {
	t.Helper()
	for _, directory := range []string{"/etc/cni/net.d", "/opt/cni/bin", "/var/lib/capture-cni", "/run/capture-cni"} {
		lab.Check(t, filepath.WalkDir(node.Path(directory), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() && strings.Contains(path[len(node.Path("/")):], "capture-cni") && !strings.Contains(path, "/lock/") {
				found = append(found, directory+strings.TrimPrefix(path, node.Path(directory)))
			}
			return err
		}))
	}
	return found
}

// startComing creates and deletes pods of the mesh, where the scheduler puts them, until end
// is called. Each has to start, captured.
func startComing(t *testing.T, n suite.Namespace) (end func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	for worker := range 2 {
		workers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				pod := suite.Server(fmt.Sprintf("coming-%d-%d", worker, i), "")
				if err := come(context.WithoutCancel(ctx), n, pod); err != nil {
					t.Errorf("%s: %v", pod.Name, err)
					return
				}
			}
		})
	}
	end = sync.OnceFunc(func() { stop(); workers.Wait() })
	t.Cleanup(end)
	return end
}

// come starts and ends a pod.
func come(ctx context.Context, n suite.Namespace, pod *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, cluster.Timeout)
	defer cancel()
	if err := n.TryCreate(ctx, pod); err != nil {
		return err
	}
	for {
		running, err := n.TryGet(ctx, pod.Name)
		switch {
		case ctx.Err() != nil || err != nil:
			return errors.Join(ctx.Err(), err)
		case running.Status.Phase == corev1.PodRunning:
			return errors.Join(n.CheckCaptured(ctx, running), n.TryDelete(ctx, pod.Name))
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// TestMove moves nodes of two runtimes from one pool to another and back, with another image
// and another mode, while pods start and end on all nodes: all are captured, and none fails.
// A bad image stops at the first pool that gets it.
func TestMove(t *testing.T) {
	lab.Check(t, c.LoadAgentImage(t.Context(), "v2"))
	const pool = "pools[0].name=canary,pools[0].nodeSelector.ring=canary,pools[0].mode=owned,pools[0].image.tag="
	c.InstallChart(t, pool+"v2")
	t.Cleanup(func() { c.InstallChart(t) })
	p := c.BuildPlugin(t)
	n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
	turnover := suite.StartTurnover(t, n, 1, suite.SandboxRuns, suite.Server)
	ring := func(node *cluster.Node, value string) {
		c.MustKubectl(t, "label", "--overwrite", "node", node.Name, "ring"+value)
	}
	for _, node := range []*cluster.Node{c.Nodes[0], c.Nodes[len(c.Nodes)-1]} {
		t.Cleanup(func() { ring(node, "-") })
		for _, to := range []struct{ value, set, image, mode string }{
			{"=canary", "capture-cni-node-canary", "v2", "owned"}, {"-", "capture-cni-node", "v1", ""},
		} {
			ring(node, to.value)
			lab.Eventually(t, func() error {
				got := kubectl(t, "get", "pods", "--field-selector=spec.nodeName="+node.Name, "-o",
					"jsonpath={range .items[*]}{.metadata.ownerReferences[0].name} {.spec.containers[0].image} {.status.conditions[?(@.type=='Ready')].status},{end}")
				if want := fmt.Sprintf("%s test.local/capture-cni/capture-cni:%s True,", to.set, to.image); got != want {
					return fmt.Errorf("%s runs %q, want %q", node.Name, got, want)
				}
				return nil
			})
			if to.mode != "" {
				p.Expect(t, "status -o wide", 0, to.mode)
			}
			turnover.Next(t)
		}
	}
	node, other := c.Nodes[0], c.Nodes[1]
	ring(node, "=canary")
	p.Expect(t, "status --wait", 0, fmt.Sprintf("%d ready", len(c.Nodes)), "capture-cni-node-canary: 1 desired, 1 updated, 1 ready")
	before := agentOn(t, other)
	c.ApplyChart(t, pool+"none")
	p.Expect(t, "status --wait --timeout 5s", 1, "1 faulty", fmt.Sprintf("%d ready", len(c.Nodes)-1), node.Name, "container kernel: ErrImageNeverPull", "capture-cni-node-canary: 1 desired, 1 updated, 0 ready")
	turnover.Next(t)
	if after := agentOn(t, other); after != before {
		t.Errorf("the agent of %s was %s, and is %s", other.Name, before, after)
	}
	c.ApplyChart(t, pool+"v2")
	p.Expect(t, "status --wait", 0, fmt.Sprintf("%d ready", len(c.Nodes)))
	turnover.End(t)
	for _, life := range turnover.Lives() {
		if !life.Ours() {
			t.Errorf("%s: %v", life.Pod, life.Fault)
		}
	}
	if failed := n.Kubectl(t, "", "get", "events", "--field-selector=reason=FailedCreatePodSandBox", "--no-headers", "--ignore-not-found"); strings.Contains(failed, "capture-cni") {
		t.Errorf("ADDs failed:\n%s", failed)
	}
}

// TestOnDelete changes the configuration with the strategy OnDelete: an agent whose
// container is restarted keeps the one that its pod was made with, and status names it.
func TestOnDelete(t *testing.T) {
	c.InstallChart(t)
	c.ApplyChart(t, "updateStrategy.type=OnDelete")
	t.Cleanup(func() { c.InstallChart(t) })
	p := c.BuildPlugin(t)
	p.Expect(t, "status --wait", 0, fmt.Sprintf("%d ready", len(c.Nodes)))
	node := c.Nodes[0]
	entry := func() string {
		t.Helper()
		content, err := os.ReadFile(node.Path("/etc/cni/net.d/podnet/capture-cni.conf"))
		lab.Check(t, err)
		return string(content)
	}
	c.ApplyChart(t, "updateStrategy.type=OnDelete", "netconf.ipv6=always")
	p.Expect(t, "status", 1, fmt.Sprintf("%d outdated", len(c.Nodes)), "delete pod capture-cni-node-")
	agent := agentOn(t, node)
	signalAgent(t, node, "KILL")
	lab.Eventually(t, func() error {
		if got := kubectl(t, "get", "pod", agent, "-o", `jsonpath={.status.containerStatuses[?(@.name=="installer")].restartCount}`); got != "1" {
			return fmt.Errorf("%s was restarted %s times", agent, got)
		}
		return nil
	})
	suite.WaitAgentReady(t, node)
	if got := entry(); strings.Contains(got, "ipv6") {
		t.Errorf("the restarted agent wrote the new configuration: %s", got)
	}
	kubectl(t, "delete", "pod", agent)
	p.Expect(t, "status", 1, fmt.Sprintf("%d outdated, 1 ready", len(c.Nodes)-1))
	if got := entry(); !strings.Contains(got, `"ipv6": "always"`) {
		t.Errorf("the new agent has not written the new configuration: %s", got)
	}
}
