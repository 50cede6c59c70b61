// SPDX-License-Identifier: Apache-2.0

package agents

import (
	"errors"
	"fmt"
	"os"
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
	adder := newAdder(t)
	t.Run("update", func(t *testing.T) {
		for _, add := range addsDuringUpdate(t, adder) {
			if add.Err != nil || !add.Captured {
				t.Errorf("after %s: captured %v, %v", add.Took, add.Captured, add.Err)
			}
		}
	})
	for _, outage := range outages {
		t.Run(outage.name, func(t *testing.T) {
			end := outage.begin(t, c.Nodes[0])
			add, err := adder.Add(t.Context())
			suite.Check(t, err)
			end()
			if add.Err != nil || !add.Captured || add.Took < outage.shortest || add.Took > outage.shortest+4*time.Second {
				t.Errorf("after %s: captured %v, %v", add.Took, add.Captured, add.Err)
			}
			t.Logf("captured after %s", add.Took.Round(time.Millisecond))
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
	adder := newAdder(t)
	t.Run("update", func(t *testing.T) {
		for _, add := range addsDuringUpdate(t, adder) {
			ofLookup := add.Err != nil && strings.Contains(add.Err.Error(), "looking up pod ")
			if !add.Captured && !ofLookup {
				t.Errorf("after %s: captured %v, %v", add.Took, add.Captured, add.Err)
			}
		}
	})
	for _, outage := range outages {
		t.Run(outage.name, func(t *testing.T) {
			end := outage.begin(t, c.Nodes[0])
			adds := make(chan suite.Add, 1)
			go func() {
				add, err := adder.Add(t.Context())
				add.Err = errors.Join(err, add.Err)
				adds <- add
			}()
			select {
			case add := <-adds:
				t.Fatalf("it did not wait for the agent: captured %v, %v", add.Captured, add.Err)
			case <-time.After(1500 * time.Millisecond): // longer than the plugin waits before it reads the pod elsewhere
			}
			end()
			ended := time.Now()
			if add := <-adds; add.Err != nil || !add.Captured {
				t.Errorf("after %s: captured %v, %v", add.Took, add.Captured, add.Err)
			}
			t.Logf("captured %s after the end", time.Since(ended).Round(time.Millisecond))
			suite.WaitAgentReady(t, c.Nodes[0])
		})
	}
	c.InstallChart(t)
	expectCredentials(t, true)
	expectPodsCaptured(t)
}

func newAdder(t *testing.T) *suite.Adder {
	t.Helper()
	n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
	n.Run(t, suite.Server("web", c.Nodes[0].Name))
	return suite.NewAdder(t, c.Nodes[0], n.Get(t, "web"))
}

// addsDuringUpdate calls the plugin up to 20 times a second while the agents are replaced.
func addsDuringUpdate(t *testing.T, adder *suite.Adder) []suite.Add {
	t.Helper()
	end := adder.Every(t, 50*time.Millisecond)
	began := time.Now()
	kubectl(t, "rollout", "restart", "daemonset/capture-cni-node")
	kubectl(t, "rollout", "status", "daemonset/capture-cni-node", suite.KubectlTimeout)
	took := time.Since(began)
	adds := end()
	captured, longest := 0, time.Duration(0)
	for _, add := range adds {
		if add.Captured {
			captured++
		}
		longest = max(longest, add.Took)
	}
	if captured == 0 {
		t.Error("no call was successful")
	}
	t.Logf("update of %s: %d calls, %d captured; the longest took %s", took.Round(time.Millisecond), len(adds), captured, longest.Round(time.Millisecond))
	return adds
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
