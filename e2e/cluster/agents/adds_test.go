// SPDX-License-Identifier: Apache-2.0

package agents

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
)

// withoutToken are settings with which the nodes have no credentials.
var withoutToken = []string{"token.onNode=false"}

// TestAddsWithToken calls the plugin while its node's agent does not answer: it reads the
// pod from the API server, without waiting for the agent. No call fails during an update.
func TestAddsWithToken(t *testing.T) {
	c.InstallChart(t)
	expectCredentials(t, true)
	web := newCaller(t)
	t.Run("update", func(t *testing.T) {
		for _, call := range web.duringUpdate(t) {
			web.expectCaptured(t, call)
		}
	})
	for _, outage := range outages {
		t.Run(outage.name, func(t *testing.T) {
			end := outage.begin(t, c.Nodes[0])
			call := web.Call(t.Context())
			end()
			web.expectCaptured(t, call)
			if call.Took < outage.shortest || call.Took > outage.shortest+4*time.Second {
				t.Errorf("ADD took %s, want between %s and 4 s more", call.Took, outage.shortest)
			}
			t.Logf("captured after %s", call.Took.Round(time.Millisecond))
			suite.WaitAgentReady(t, c.Nodes[0])
		})
	}
}

// TestAddsWithoutToken turns credentials on the nodes off and on again. Each agent calls
// the installed plugin from its container before it removes them. Without them, calls
// wait for the agent; no pod starts uncaptured.
func TestAddsWithoutToken(t *testing.T) {
	c.InstallChart(t)
	expectCredentials(t, true)
	c.InstallChart(t, withoutToken...)
	expectCredentials(t, false)
	expectPodsCaptured(t)
	web := newCaller(t)
	t.Run("update", func(t *testing.T) {
		for _, call := range web.duringUpdate(t) {
			if call.Digest == "" && call.Err != nil && strings.Contains(call.Err.Error(), "looking up pod ") {
				continue
			}
			web.expectCaptured(t, call)
		}
	})
	for _, outage := range outages {
		t.Run(outage.name, func(t *testing.T) {
			end := outage.begin(t, c.Nodes[0])
			calls := make(chan suite.Call, 1)
			go func() { calls <- web.Call(t.Context()) }()
			select {
			case call := <-calls:
				t.Fatalf("it did not wait for the agent: rules %q, %v", call.Digest, call.Err)
			case <-time.After(1500 * time.Millisecond): // longer than the plugin waits before it reads the pod elsewhere
			}
			end()
			ended := time.Now()
			web.expectCaptured(t, <-calls)
			t.Logf("captured %s after the end", time.Since(ended).Round(time.Millisecond))
			suite.WaitAgentReady(t, c.Nodes[0])
		})
	}
	c.InstallChart(t)
	expectCredentials(t, true)
	expectPodsCaptured(t)
}

// caller calls the plugin with the identity of a pod, whose rules have a digest.
type caller struct {
	*suite.Caller
	digest string
}

func newCaller(t *testing.T) caller {
	t.Helper()
	n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
	n.Run(t, suite.Server("web", c.Nodes[0].Name))
	n.ExpectCaptured(t, "web")
	return caller{suite.NewCaller(t, c.Nodes[0], n.Get(t, "web")), n.Digest(t, "web")}
}

// expectCaptured expects an ADD that left the pod's rules, and a DEL that removed them.
func (c caller) expectCaptured(t *testing.T, call suite.Call) {
	t.Helper()
	if call.Err != nil || call.Digest != c.digest {
		t.Errorf("after %s: rules %q, want %q: %v", call.Took, call.Digest, c.digest, call.Err)
	}
}

// duringUpdate calls the plugin up to 20 times a second while the agents are replaced.
func (c caller) duringUpdate(t *testing.T) []suite.Call {
	t.Helper()
	end := c.Every(t, 50*time.Millisecond)
	kubectl(t, "rollout", "restart", "daemonset/capture-cni-node")
	kubectl(t, "rollout", "status", "daemonset/capture-cni-node", suite.KubectlTimeout)
	calls := end()
	if !slices.ContainsFunc(calls, func(call suite.Call) bool { return call.Digest != "" }) {
		t.Error("no call was successful")
	}
	return calls
}

// expectPodsCaptured starts a pod on each node.
func expectPodsCaptured(t *testing.T) {
	t.Helper()
	n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
	for _, node := range c.Nodes {
		n.Create(t, suite.Server("web-"+node.Name, node.Name))
	}
	n.Kubectl(t, "", "wait", "--for=condition=Ready", suite.KubectlTimeout, "pod", "--all")
	for _, node := range c.Nodes {
		n.ExpectCaptured(t, "web-"+node.Name)
	}
}

// expectCredentials expects on each node what the plugin needs to read pods from the API
// server, or nothing of it.
func expectCredentials(t *testing.T, want bool) {
	t.Helper()
	for _, node := range c.Nodes {
		for _, path := range []string{"/var/lib/capture-cni/kubeconfig", "/var/lib/capture-cni/token", "/opt/cni/bin/capture-cni-lookup"} {
			if _, err := os.Stat(node.Path(path)); (err == nil) != want {
				t.Errorf("%s: %s: %v, want it: %v", node.Name, path, err, want)
			}
		}
		if left, err := os.ReadDir(node.Path("/run/capture-cni")); err != nil || strings.Contains(fmt.Sprint(left), "token") {
			t.Errorf("%s: the run directory has %v, %v", node.Name, left, err)
		}
	}
	role := kubectl(t, "get", "clusterrole", "capture-cni", "-o", "jsonpath={.rules}")
	if permitted := strings.Contains(role, "pods"); permitted != want {
		t.Errorf("the plugin's role has the rules %q, want one of pods: %v", role, want)
	}
}
