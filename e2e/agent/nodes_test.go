// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
)

// podOf adds a meshed pod of a node.
func (n *node) podOf(name, nodeName string) {
	p := machine.NewPod(name, true)
	p.Spec.NodeName = nodeName
	n.API.Put(p)
}

// boundTo returns the Nodes that tokens were requested for, "" for one without.
func (n *node) boundTo() (names []string) {
	for _, request := range n.API.TokenRequests() {
		name := ""
		if request.BoundObjectRef != nil {
			name = request.BoundObjectRef.Name
		}
		names = append(names, name)
	}
	return names
}

// TestDeletedNode deletes the agent's Node, as `kubectl delete node` does: the plugin's
// token is revoked, and no other takes its place, while the agent goes on to answer for
// the pods that still run. When the Node is registered again, the startup taint goes,
// and the next agent requests a token for it.
func TestDeletedNode(t *testing.T) {
	t.Parallel()
	n := taintedNode(t)
	n.PreparePods(t)
	n.podOf("web", "node-1")
	a := n.startUntainting(t, `{"lookupTimeout": "2s"}`)
	n.expectUntainted(t, a)
	n.API.DeleteNode("node-1")

	a.Stop(t)
	a = n.startUntainting(t, `{"lookupTimeout": "2s"}`)
	a.WaitForLog(t, `nodes \"node-1\" not found`)
	if err := n.StartAndStop(t, "web"); err != nil {
		t.Errorf("while the agent answers: %v", err)
	}
	if status, body := a.Get("/healthz"); status != http.StatusOK {
		t.Errorf("the agent is not alive: %s", body)
	}
	a.Stop(t)
	if out, err := n.Call("ADD", "web", machine.Sandbox(t).Path(), "2s"); err == nil || !strings.Contains(out, "check that the node agent runs") {
		t.Errorf("without an agent: %v: %s", err, out)
	}
	if out, err := n.Call("DEL", "web", machine.Sandbox(t).Path(), "2s"); err != nil {
		t.Errorf("DEL: %v: %s", err, out)
	}
	if got := n.boundTo(); !slices.Equal(got, []string{"node-1"}) {
		t.Errorf("tokens were issued for %q", got)
	}

	a = n.startUntainting(t, `{"lookupTimeout": "2s"}`)
	a.WaitForLog(t, `nodes \"node-1\" not found`)
	n.API.PutNode("node-1", corev1.Taint{Key: startupTaint, Effect: corev1.TaintEffectNoSchedule}, corev1.Taint{Key: "other", Effect: corev1.TaintEffectNoSchedule})
	begin := time.Now()
	n.expectUntainted(t, a)
	if took := time.Since(begin); took > soon {
		t.Errorf("the Node lost its taint after %s", took)
	}
	a.Stop(t)
	a = n.startUntainting(t, `{}`)
	n.expectTokensFor(t, "node-1", "node-1")
	a.StopOnceReady(t)
	n.expectTokenWorks(t)
}

// TestRenamedNode starts the agent with another name of the node, as after the disk of
// one node was copied to another: it requests a token for the new Node at once, and
// watches that one's pods. The end of the old Node changes nothing.
func TestRenamedNode(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.podOf("web", "node-2")
	n.Start(t, "--mode", "insert").StopOnceReady(t)
	a := n.Start(t, "--mode", "insert", "--node-name", "node-2")
	a.WaitForMetric(t, "capture_cni_pods_watched 1")
	n.expectTokensFor(t, "node-1", "node-2")
	a.StopOnceReady(t)
	n.API.DeleteNode("node-1")
	n.expectTokenWorks(t)
}

// TestNodeNotRegistered starts the agent before its Node exists, as on the first boot of
// a node image: it installs an unbound token, and binds the next one.
func TestNodeNotRegistered(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.podOf("web", "node-1")
	n.API.DeleteNode("node-1")
	n.Start(t, "--mode", "insert").StopOnceReady(t)
	n.expectTokensFor(t, "")
	n.expectTokenWorks(t)
	n.API.PutNode("node-1")
	n.API.ChangeKeys()
	a := n.Start(t, "--mode", "insert")
	n.expectTokensFor(t, "", "node-1")
	a.StopOnceReady(t)
	n.expectTokenWorks(t)
}

// expectTokensFor waits until a token was issued for each of these Nodes, "" for none.
func (n *node) expectTokensFor(t *testing.T, nodes ...string) {
	t.Helper()
	lab.Eventually(t, func() error {
		if got := n.boundTo(); !slices.Equal(got, nodes) {
			return &unexpected{strings.Join(nodes, ","), strings.Join(got, ",")}
		}
		return nil
	})
}

// expectTokenWorks expects the token on the node to work without an agent.
func (n *node) expectTokenWorks(t *testing.T) {
	t.Helper()
	if err := n.add(t, "5s"); err != nil {
		t.Errorf("with the token on the node: %v", err)
	}
}
