// SPDX-License-Identifier: Apache-2.0

package agents

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestAPIGone stops the sandboxes of pods while there is no API server: the
// kubelets create new ones. Those of unmeshed pods start and stop. A meshed pod starts
// on the node whose agent has seen it. On the other, where the agent starts meanwhile,
// it waits, with an event that says for what.
func TestAPIGone(t *testing.T) {
	c.InstallChart(t, suite.ShortLookup)
	n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
	var meshed, plain []*corev1.Pod
	for _, node := range c.Nodes {
		meshed = append(meshed, suite.Server("meshed-"+node.Name, node.Name))
		plain = append(plain, suite.Unmeshed(suite.Server("plain-"+node.Name, node.Name)))
	}
	n.Run(t, append(meshed, plain...)...)
	known, unknown := n.Get(t, meshed[0].Name), meshed[1]
	lab.Check(t, c.StopAPI())
	stopped := time.Now()
	running := false
	defer func() {
		if !running {
			lab.Check(t, c.StartAPI(context.Background()))
		}
	}()
	signalAgent(t, c.Nodes[1], "KILL")
	lab.Eventually(t, func() error { // the kubelet starts it again
		status, body, err := suite.AskAgent(t.Context(), c.Nodes[1], "/readyz")
		if err == nil && (status == http.StatusOK || !strings.Contains(body, "pods: the agent has not read its node's pods yet: ")) {
			err = fmt.Errorf("/readyz says %d: %s", status, body)
		}
		return err
	})
	for _, pod := range append(meshed, plain...) {
		loseSandbox(t, n, pod.Name)
	}
	for i, node := range c.Nodes {
		static := "static-" + node.Name
		n.WaitSandbox(t, plain[i].Name)
		suite.WriteStaticPod(t, node, n.Name, "static")
		n.WaitSandbox(t, static)
		suite.RemoveStaticPod(t, node)
		lab.Eventually(t, func() error {
			if n.HasSandbox(t, static) {
				return fmt.Errorf("%s still runs", static)
			}
			return nil
		})
	}
	n.WaitSandbox(t, known.Name)
	lab.Check(t, n.CheckCaptured(t.Context(), known))
	time.Sleep(time.Until(stopped.Add(8 * time.Second))) // longer than the kubelets' first tries
	if n.HasSandbox(t, unknown.Name) {
		t.Errorf("%s has started", unknown.Name)
	}
	lab.Check(t, c.StartAPI(t.Context()))
	running, back := true, time.Now()
	n.WaitSandbox(t, unknown.Name)
	t.Logf("the meshed pod ran %s after the API server was back", time.Since(back).Round(100*time.Millisecond))
	n.ExpectCaptured(t, unknown.Name)
	for _, reason := range []string{"lookupTimeout of 3s leaves no time for a retry", "the agent has not read its node's pods yet: ", "asking the API server: request to "} {
		n.WaitSandboxEvent(t, unknown.Name, reason)
	}
	// Controllers and kubelets are slow to reconnect. The next test needs them,
	// and they are back once they have restarted the agents.
	kubectl(t, "rollout", "restart", "daemonset/capture-cni-node")
	kubectl(t, "rollout", "status", "daemonset/capture-cni-node", suite.KubectlTimeout)
}

// TestBrokenNode damages what meshed pods need on a node without an agent.
// Unmeshed pods start and stop; meshed ones wait with an event that says why, and
// start soon after the agent is back.
func TestBrokenNode(t *testing.T) {
	c.InstallChart(t, suite.ShortLookup)
	node := c.Nodes[0]
	entry := node.Path("/etc/cni/net.d/podnet/capture-cni.conf")
	for _, tt := range []struct {
		name   string
		damage func(t *testing.T)
		event  string // empty where meshed pods start
	}{
		{"token expired", func(t *testing.T) {
			lab.Check(t, os.WriteFile(node.Path("/var/lib/capture-cni/token"), []byte(expiredToken), 0o600))
		}, "Unauthorized: the API server refuses the credentials in /var/lib/capture-cni/token: check that the node agent runs"},
		{"kubeconfig gone", func(t *testing.T) { lab.Check(t, os.Remove(node.Path("/var/lib/capture-cni/kubeconfig"))) }, "check that the node agent runs"},
		{"nothing but a misspelt key", func(t *testing.T) { edit(t, node, entry, `"type"`, `"ip-v6": "always", "type"`) }, ""},
		{"misspelt value", func(t *testing.T) { edit(t, node, entry, `"type"`, `"ipv6": "sometimes", "type"`) }, `"ipv6" is "sometimes": expected one of`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
			removeAgents(t)
			tt.damage(t)
			meshed, plain := suite.Server("meshed", node.Name), suite.Unmeshed(suite.Server("plain", node.Name))
			n.Create(t, meshed, plain)
			n.WaitReady(t, plain)
			n.Delete(t, plain)
			if tt.event == "" {
				n.WaitReady(t, meshed)
			} else {
				n.ExpectNoSandbox(t, "meshed", tt.event)
			}
			restored := time.Now()
			restoreAgents(t)
			n.Kubectl(t, "", "wait", "--for=condition=Ready", suite.KubectlTimeout, "pod/meshed")
			t.Logf("ready %s after the agent was restored", time.Since(restored).Round(100*time.Millisecond))
			n.ExpectCaptured(t, "meshed")
		})
	}
}

// expiredToken has the form of a token; the API server rejects it.
const expiredToken = "eyJhbGciOiJFUzI1NiJ9.eyJleHAiOjF9.AAAA"

// loseSandbox stops a pod's sandbox without the kubelet.
func loseSandbox(t *testing.T, n suite.Namespace, pod string) {
	t.Helper()
	lost, err := n.Sandbox(t.Context(), pod)
	lab.Check(t, err)
	lab.Check(t, lost.Stop(t.Context()))
}

// edit changes our entry and makes the runtime load it.
func edit(t *testing.T, node *cluster.Node, path, from, to string) {
	t.Helper()
	content, err := os.ReadFile(path)
	lab.Check(t, err)
	changed := strings.Replace(string(content), from, to, 1)
	if changed == string(content) {
		t.Fatalf("%s does not contain %s", path, from)
	}
	lab.Check(t, os.WriteFile(path, []byte(changed), 0o600))
	lab.Check(t, suite.TriggerReload(node))
}
