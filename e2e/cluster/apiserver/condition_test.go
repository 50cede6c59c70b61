// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
)

// condition returns the condition CaptureReady of the node.
func (s apiServer) condition(t *testing.T) (found corev1.NodeCondition) {
	t.Helper()
	out := s.kubectl(t, "get", "node", "node-1", "-o", `jsonpath={.status.conditions[?(@.type=="CaptureReady")]}`)
	if out != "" {
		lab.Check(t, json.Unmarshal([]byte(out), &found))
	}
	return found
}

// TestCondition runs an agent with the permission to patch the status of Nodes, and no other on Nodes.
// The condition follows the state of the node and survives the agent, and the API server refuses every
// other change of a Node's status by an agent. A kubelet's changes are no agent's.
func TestCondition(t *testing.T) {
	t.Parallel()
	s := startAPIServer(t)
	lab.Check(t, s.Install(t.Context(), "image.tag=none", "condition.enabled=true"))
	n := s.node(t, "web")
	s.kubectl(t, "patch", "node", "node-1", "--subresource=status", "--type=strategic", "-p", `{"status": {"conditions": [{"type": "Other", "status": "True", "reason": "Kept"}],
		"nodeInfo": {"kernelVersion": "6.1.0"}}}`)
	uid := s.kubectl(t, "--namespace", cluster.Namespace, "get", "pod", "agent", "-o", "jsonpath={.metadata.uid}")
	identity := []string{"env", "POD_NAMESPACE=" + cluster.Namespace, "POD_NAME=agent", "POD_UID=" + uid}
	start := func(args ...string) func() {
		a := n.StartBehind(t, identity, append([]string{"--mode", "insert", "--namespace", cluster.Namespace, "--condition"}, args...)...)
		return func() { a.Stop(t) }
	}
	expect := func(status corev1.ConditionStatus, text string) (found corev1.NodeCondition) {
		t.Helper()
		lab.Eventually(t, func() error {
			if found = s.condition(t); found.Status != status || !strings.Contains(found.Message, text) {
				return fmt.Errorf("the condition is %+v, want %s with %q", found, status, text)
			}
			return nil
		})
		return found
	}
	stop := start()
	first := expect(corev1.ConditionTrue, "are captured")
	stop()
	t.Run("policy", func(t *testing.T) { s.testConditionPolicy(t) })
	n.Write(t, machine.PrimaryName, "{")
	stop = start()
	broken := expect(corev1.ConditionFalse, "entry")
	if !broken.LastTransitionTime.After(first.LastTransitionTime.Time) || !broken.LastHeartbeatTime.After(first.LastHeartbeatTime.Time) {
		t.Errorf("after %+v, the condition is %+v", first, broken)
	}
	stop()
	n.Write(t, machine.PrimaryName, machine.Kindnet)
	stop = start()
	expect(corev1.ConditionTrue, "are captured")
	stop()
	stop = start("--state", "absent")
	expect(corev1.ConditionFalse, "with --state=absent")
	stop()
	if kept := s.kubectl(t, "get", "node", "node-1", "-o", `jsonpath={.status.nodeInfo.kernelVersion} {.status.conditions[?(@.type=="Other")].reason}`); kept != "6.1.0 Kept" {
		t.Errorf("others' fields are now %q", kept)
	}
}

func (s apiServer) testConditionPolicy(t *testing.T) {
	t.Helper()
	const agent = "system:serviceaccount:" + cluster.Namespace + ":capture-cni-node"
	s.create(t, `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-2"}}`)
	// kubectl reads what it patches, which neither an agent nor a kubelet is allowed to.
	s.kubectl(t, "create", "clusterrole", "reader", "--verb=get", "--resource=nodes,nodes/status")
	s.kubectl(t, "create", "clusterrolebinding", "reader", "--clusterrole=reader", "--group=system:nodes", "--serviceaccount="+cluster.Namespace+":capture-cni-node")
	const own = `{"status": {"conditions": [{"type": "CaptureReady", "status": "False", "reason": "a", "message": "b"}]}}`
	var waited sync.Once // until role and policy are in effect
	for _, tt := range []struct{ name, user, from, node, patch, refused string }{
		{"another node", agent, "node-1", "node-2", own, "its own node alone, which is node-1"},
		{"its condition", agent, "node-1", "node-1", own, ""},
		{"no change", agent, "node-1", "node-1", `{}`, ""},
		{"no change of another node", agent, "node-1", "node-2", `{}`, "its own node alone, which is node-1"},
		{"a token of no node's", agent, "", "node-1", own, "its own node alone"},
		{"the kubelet's condition", agent, "node-1", "node-1", `{"status": {"conditions": [{"type": "Ready", "status": "False"}]}}`, "and no other"},
		{"a new condition", agent, "node-1", "node-1", `{"status": {"conditions": [{"type": "CaptureReady2", "status": "False"}]}}`, "and no other"},
		{"one condition less", agent, "node-1", "node-1", `{"status": {"conditions": [{"type": "Other", "$patch": "delete"}]}}`, "and no other"},
		{"a label", agent, "node-1", "node-1", `{"metadata": {"labels": {"a": "b"}}}`, "nothing of its node but a condition"},
		{"an annotation", agent, "node-1", "node-1", `{"metadata": {"annotations": {"a": "b"}}}`, "nothing of its node but a condition"},
		{"a finalizer", agent, "node-1", "node-1", `{"metadata": {"finalizers": ["a.example/b"]}}`, "nothing of its node but a condition"},
		{"an owner", agent, "node-1", "node-1", `{"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "1"}]}}`, "nothing of its node but a condition"},
		{"a capacity", agent, "node-1", "node-1", `{"status": {"capacity": {"example.com/gpu": "4"}}}`, "nothing of its node but a condition"},
		{"an address", agent, "node-1", "node-1", `{"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.9"}]}}`, "nothing of its node but a condition"},
		{"a version", agent, "node-1", "node-1", `{"status": {"nodeInfo": {"kernelVersion": "7"}}}`, "nothing of its node but a condition"},
		{"an image", agent, "node-1", "node-1", `{"status": {"images": [{"names": ["a"]}]}}`, "nothing of its node but a condition"},
		{"the kubelet itself", "system:node:node-2", "", "node-2", `{"status": {"conditions": [{"type": "Ready", "status": "True"}], "capacity": {"pods": "9"}}}`, ""},
	} {
		args := []string{"patch", "node", tt.node, "--subresource=status", "--type=strategic", "--dry-run=server", "-p", tt.patch, "--as=" + tt.user}
		if tt.from != "" {
			args = append(args, "--as-user-extra=authentication.kubernetes.io/node-name="+tt.from)
		}
		if strings.HasPrefix(tt.user, "system:node:") {
			args = append(args, "--as-group=system:nodes")
		}
		patch := func() error {
			out, err := s.Kubectl(t.Context(), "", args...)
			if (err != nil) != (tt.refused != "") || err != nil && !strings.Contains(err.Error(), tt.refused) {
				return fmt.Errorf("%s: %s, %w, want %q", tt.name, out, err, tt.refused)
			}
			return nil
		}
		waited.Do(func() { lab.Eventually(t, patch) })
		lab.Check(t, patch())
	}
	for _, args := range [][]string{
		{"--as=system:serviceaccount:" + cluster.Namespace + ":capture-cni", "--subresource=status"}, // the plugin's
		{"--as=" + agent},
	} {
		if out, err := s.Kubectl(t.Context(), "", append([]string{"auth", "can-i", "patch", "nodes"}, args...)...); err == nil || strings.TrimSpace(out) != "no" {
			t.Errorf("kubectl auth can-i patch nodes %s: %s (%v), want no", args, out, err)
		}
	}
}
