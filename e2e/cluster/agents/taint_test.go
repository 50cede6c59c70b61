// SPDX-License-Identifier: Apache-2.0

package agents

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

const startupTaint = "capture-cni.io/not-ready"

// taintRemoval are settings with which the agent removes the taint.
var taintRemoval = []string{suite.ShortLookup, "taint.remove=true"}

// TestTaint has nodes that were registered with the taint. The scheduler places no
// pod there before the agent is ready; after that all pods start, captured by the
// plugin itself.
func TestTaint(t *testing.T) {
	c.InstallChart(t)
	c.UninstallChart(t)
	n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
	for _, node := range c.Nodes {
		addTaint(t, node)
	}
	var pods []*corev1.Pod
	for i := range 20 {
		pods = append(pods, suite.Server(fmt.Sprintf("early-%d", i), ""))
	}
	n.Create(t, pods...)
	for _, pod := range pods {
		lab.Eventually(t, func() error { return expectUnschedulable(t, n, pod.Name) })
	}
	c.InstallChart(t, taintRemoval...)
	installedAt := time.Now()
	for _, node := range c.Nodes {
		expectUntainted(t, node)
	}
	t.Logf("untainted at most %s after the agents were ready", time.Since(installedAt).Round(100*time.Millisecond))
	n.WaitReady(t, pods...)
	for _, pod := range pods {
		n.ExpectCaptured(t, pod.Name)
	}
	if repaired := n.Kubectl(t, "", "get", "events", "--field-selector=reason=CaptureRepaired", "--no-headers", "--ignore-not-found"); repaired != "" {
		t.Errorf("pods started before the plugin was ready:\n%s", repaired)
	}
}

// TestTaintStays removes a permission that the agent needs to watch pods: a new agent
// leaves the taint on its node, with an Event that says why, until the permission is back.
func TestTaintStays(t *testing.T) {
	c.InstallChart(t, taintRemoval...)
	node := c.Nodes[0]
	lab.Check(t, removeTaints(t))
	c.MustKubectl(t, "delete", "events", "--field-selector=reason=CaptureNotReady") // of an earlier run
	binding := c.MustKubectl(t, "get", "clusterrolebinding", "capture-cni-node", "-o", "json")
	c.MustKubectl(t, "delete", "clusterrolebinding", "capture-cni-node")
	t.Cleanup(func() { _, _ = c.Kubectl(context.Background(), binding, "apply", "--filename=-") }) // for a test that failed before it did
	addTaint(t, node)
	kubectl(t, "delete", "pods", "--field-selector=spec.nodeName="+node.Name) // a new agent checks at once
	lab.Eventually(t, func() error {
		said := c.MustKubectl(t, "get", "events", "--field-selector=reason=CaptureNotReady,involvedObject.name="+node.Name, "-o", "jsonpath={.items[*].message}")
		if !strings.Contains(said, "pods: the agent has not read its node's pods yet: ") || !strings.Contains(said, "cannot list resource") {
			return fmt.Errorf("the Events are %q", said)
		}
		return nil
	})
	if described := c.MustKubectl(t, "describe", "node", node.Name); !strings.Contains(described, "CaptureNotReady") {
		t.Errorf("kubectl describe does not show the Event:\n%s", described)
	}
	if !slices.Contains(taints(t, node), startupTaint) {
		t.Error("the taint is gone")
	}
	_, err := c.Kubectl(t.Context(), binding, "create", "--filename=-")
	lab.Check(t, err)
	expectUntainted(t, node)
}

// TestTaintPolicy expects the API server to refuse every change of nodes by an
// agent's token, except the removal of the taint from its own node.
func TestTaintPolicy(t *testing.T) {
	c.InstallChart(t, taintRemoval...)
	removeAgents(t) // they would remove the taint
	lab.Check(t, removeTaints(t))
	agent := "system:serviceaccount:" + cluster.Namespace + ":capture-cni-node"
	own, other := c.Nodes[0].Name, c.Nodes[1].Name
	c.MustKubectl(t, "taint", "node", "--all", "--overwrite", "foreign=:NoSchedule")
	t.Cleanup(func() { c.MustKubectl(t, "taint", "node", "--all", "foreign-") })
	add := fmt.Sprintf(`[{"op": "add", "path": "/spec/taints/-", "value": {"key": %q, "effect": "NoSchedule"}}]`, startupTaint)
	for _, tt := range []struct {
		name, from, node, patch string
		errContains             string
	}{
		{"adds its taint", own, own, add, "an agent may remove the taint " + startupTaint + " from its node"},
		{"removes another taint", own, own, `[{"op": "remove", "path": "/spec/taints"}]`, "change no other taint"},
		{"changes another taint", own, own, `[{"op": "replace", "path": "/spec/taints/0/effect", "value": "PreferNoSchedule"}]`, "change no other taint"},
		{"labels its node", own, own, `[{"op": "add", "path": "/metadata/labels/a", "value": "b"}]`, "nothing of its node but a taint"},
		{"annotates its node", own, own, `[{"op": "add", "path": "/metadata/annotations/a", "value": "b"}]`, "nothing of its node but a taint"},
		{"adds a finalizer", own, own, `[{"op": "add", "path": "/metadata/finalizers", "value": ["a.example/b"]}]`, "nothing of its node but a taint"},
		{"cordons its node", own, own, `[{"op": "add", "path": "/spec/unschedulable", "value": true}]`, "nothing of its node but a taint"},
		{"another node", own, other, `[{"op": "test", "path": "/metadata/name", "value": "` + other + `"}]`, "its own node alone, which is " + own},
		{"a token of no node's", "", own, `[{"op": "test", "path": "/metadata/name", "value": "` + own + `"}]`, "its own node alone"},
		{"changes nothing", own, own, `[{"op": "test", "path": "/metadata/name", "value": "` + own + `"}]`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := patchAs(t, agent, tt.from, tt.node, tt.patch)
			if tt.errContains == "" {
				lab.Check(t, err)
			} else if err == nil || !strings.Contains(err.Error(), tt.errContains) {
				t.Errorf("got %v, want an error with %q", err, tt.errContains)
			}
		})
	}
	for _, args := range [][]string{
		{"--as=system:serviceaccount:" + cluster.Namespace + ":capture-cni"}, // the plugin's
		{"--as=system:serviceaccount:default:default"},
		{"--as=" + agent, "--subresource=status"},
	} {
		out, err := c.Kubectl(t.Context(), "", append([]string{"auth", "can-i", "patch", "nodes"}, args...)...)
		if err == nil || strings.TrimSpace(out) != "no" {
			t.Errorf("kubectl auth can-i patch nodes %s: %s (%v), want no", args, out, err)
		}
	}
	addTaint(t, c.Nodes[1])
	at := fmt.Sprintf("/spec/taints/%d", slices.Index(taints(t, c.Nodes[1]), startupTaint))
	remove := fmt.Sprintf(`[{"op": "test", "path": "%[1]s/key", "value": %[2]q}, {"op": "remove", "path": %[1]q}]`, at, startupTaint)
	if err := patchAs(t, agent, own, other, remove); err == nil || !slices.Contains(taints(t, c.Nodes[1]), startupTaint) {
		t.Errorf("the agent of another node removed the taint (%v)", err)
	}
	lab.Check(t, patchAs(t, agent, other, other, remove))
	if got := taints(t, c.Nodes[1]); !slices.Equal(got, []string{"foreign"}) {
		t.Errorf("the node has the taints %q", got)
	}
}

// patchAs patches a node as a user whose token was issued for the node from, if
// that is not empty.
func patchAs(t *testing.T, user, from, node, patch string) error {
	t.Helper()
	args := []string{"patch", "node", node, "--as=" + user, "--type=json", "--patch=" + patch}
	if from != "" {
		args = append(args, "--as-user-extra=authentication.kubernetes.io/node-name="+from)
	}
	_, err := c.Kubectl(t.Context(), "", args...)
	return err
}

func addTaint(t *testing.T, node *cluster.Node) {
	t.Helper()
	c.MustKubectl(t, "taint", "node", node.Name, "--overwrite", startupTaint+"=:NoSchedule")
	t.Cleanup(func() { lab.Check(t, removeTaints(t)) })
}

// removeTaints removes the taint from all nodes.
func removeTaints(t *testing.T) error {
	t.Helper()
	for _, node := range c.Nodes {
		if !slices.Contains(taints(t, node), startupTaint) {
			continue
		}
		// An agent may do it first.
		if out, err := c.Kubectl(context.WithoutCancel(t.Context()), "", "taint", "node", node.Name, startupTaint+"-"); err != nil && !strings.Contains(err.Error(), "not found") {
			return fmt.Errorf("%s: %w", out, err)
		}
	}
	return nil
}

func taints(t *testing.T, node *cluster.Node) (keys []string) {
	t.Helper()
	var found corev1.Node
	lab.Check(t, json.Unmarshal([]byte(c.MustKubectl(t, "get", "node", node.Name, "-o", "json")), &found))
	for _, taint := range found.Spec.Taints {
		keys = append(keys, taint.Key)
	}
	return keys
}

func expectUntainted(t *testing.T, node *cluster.Node) {
	t.Helper()
	lab.Eventually(t, func() error {
		if got := taints(t, node); slices.Contains(got, startupTaint) {
			return fmt.Errorf("%s has the taints %q", node.Name, got)
		}
		return nil
	})
}

// expectUnschedulable returns an error unless the scheduler found no node for a pod.
func expectUnschedulable(t *testing.T, n suite.Namespace, pod string) error {
	t.Helper()
	found := n.Get(t, pod)
	for _, condition := range found.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Reason == corev1.PodReasonUnschedulable && strings.Contains(condition.Message, "untolerated taint") {
			return nil
		}
	}
	return fmt.Errorf("%s is on node %q: %+v", pod, found.Spec.NodeName, found.Status.Conditions)
}
