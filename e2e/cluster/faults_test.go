// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
)

// impatient has an ADD fail soon, so that there are events to be read.
const impatient = "netconf.lookupTimeout=3s"

// TestAPIGone has pods lose their sandboxes while there is no API server: the
// kubelets make new ones. Those of unmeshed pods start and stop, those of
// meshed ones wait, and say for what.
func TestAPIGone(t *testing.T) {
	install(t, impatient)
	s := newSpace(t, restricted, cluster.Injected)
	var meshed, plain []*corev1.Pod
	for _, node := range c.Nodes {
		meshed = append(meshed, server("meshed-"+node.Name, node.Name))
		plain = append(plain, unmeshed(server("plain-"+node.Name, node.Name)))
	}
	s.run(t, append(meshed, plain...)...)
	check(t, c.StopAPI())
	stopped := time.Now()
	running := false
	defer func() {
		if !running {
			check(t, c.StartAPI(context.Background()))
		}
	}()
	for _, pod := range append(meshed, plain...) {
		s.loseSandbox(t, pod.Name)
	}
	for i, node := range c.Nodes {
		static := "static-" + node.Name
		s.starts(t, plain[i].Name)
		writeStatic(t, node, s.name, "static")
		s.starts(t, static)
		removeStatic(t, node)
		eventually(t, func() error {
			if s.runs(t, static) {
				return fmt.Errorf("%s still runs", static)
			}
			return nil
		})
	}
	time.Sleep(time.Until(stopped.Add(8 * time.Second))) // longer than the kubelets' first tries
	for _, pod := range meshed {
		if s.runs(t, pod.Name) {
			t.Errorf("%s has started", pod.Name)
		}
	}
	check(t, c.StartAPI(t.Context()))
	running, mended := true, time.Now()
	for _, pod := range meshed {
		s.starts(t, pod.Name)
		s.isCaptured(t, pod.Name)
		s.says(t, pod.Name, "lookupTimeout of 3s is used up")
	}
	t.Logf("the pods of the mesh run %s after the API server was back", time.Since(mended).Round(100*time.Millisecond))
	// Controllers and kubelets are slow to notice: they are back once they
	// have brought new agents, for the next test as well.
	agents(t, "rollout", "restart", "daemonset/capture-cni-node")
	agents(t, "rollout", "status", "daemonset/capture-cni-node", patience)
}

// runs tells whether a node runs a pod.
func (s space) runs(t *testing.T, pod string) bool {
	t.Helper()
	_, err := s.sandbox(t.Context(), pod)
	if !errors.Is(err, errNowhere) {
		check(t, err)
	}
	return err == nil
}

// starts waits until a node runs a pod.
func (s space) starts(t *testing.T, pod string) {
	t.Helper()
	eventually(t, func() error {
		_, err := s.sandbox(t.Context(), pod)
		return err
	})
}

// TestBrokenNode breaks what meshed pods need on a node while its agent is
// gone. Unmeshed pods start and stop as ever; meshed ones wait with an event
// that says why, and start soon after the agent is back.
func TestBrokenNode(t *testing.T) {
	install(t, impatient)
	node := c.Nodes[0]
	entry := node.Path("/etc/cni/net.d/podnet/capture-cni.conf")
	for _, tt := range []struct {
		name   string
		broken func(t *testing.T)
		event  string // empty where meshed pods start all the same
	}{
		{"token expired", func(t *testing.T) {
			check(t, os.WriteFile(node.Path("/var/lib/capture-cni/token"), []byte(expiredToken), 0o600))
		}, "Unauthorized: the API server refuses the credentials in /var/lib/capture-cni/token; is the node agent running"},
		{"kubeconfig gone", func(t *testing.T) { check(t, os.Remove(node.Path("/var/lib/capture-cni/kubeconfig"))) }, "is the node agent running"},
		{"nothing but a misspelt key", func(t *testing.T) { edit(t, node, entry, `"type"`, `"ip-v6": "always", "type"`) }, ""},
		{"misspelt value", func(t *testing.T) { edit(t, node, entry, `"type"`, `"ipv6": "sometimes", "type"`) }, `"ipv6" is "sometimes": expected one of`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSpace(t, restricted, cluster.Injected)
			removeAgents(t)
			tt.broken(t)
			meshed, plain := server("meshed", node.Name), unmeshed(server("plain", node.Name))
			s.create(t, meshed, plain)
			s.ready(t, plain)
			s.remove(t, plain)
			if tt.event == "" {
				s.ready(t, meshed)
			} else {
				s.waits(t, "meshed", tt.event)
			}
			mended := time.Now()
			bringAgents(t)
			s.kubectl(t, "", "wait", "--for=condition=Ready", patience, "pod/meshed")
			t.Logf("ready %s after the agent was allowed back", time.Since(mended).Round(100*time.Millisecond))
			s.isCaptured(t, "meshed")
		})
	}
}

// expiredToken has the form of a token, which the API server takes for nobody's.
const expiredToken = "eyJhbGciOiJFUzI1NiJ9.eyJleHAiOjF9.AAAA"

// waits expects a pod to have no sandbox, and an event that says why.
func (s space) waits(t *testing.T, pod, why string) {
	t.Helper()
	s.says(t, pod, why)
	if s.runs(t, pod) {
		t.Errorf("%s has started", pod)
	}
}

// says expects an event about a pod that could not start.
func (s space) says(t *testing.T, pod, why string) {
	t.Helper()
	eventually(t, func() error {
		events := s.kubectl(t, "", "get", "events", "--field-selector", "reason=FailedCreatePodSandBox,involvedObject.name="+pod, "-o", "jsonpath={.items[*].message}")
		if !strings.Contains(events, why) {
			return fmt.Errorf("no event says %q: %s", why, events)
		}
		return nil
	})
}

// isCaptured asks the kernel.
func (s space) isCaptured(t *testing.T, pod string) {
	t.Helper()
	if rules := s.rules(t, pod); rules.Backend == "" || rules.Foreign != "" {
		t.Errorf("%s holds %+v", pod, rules)
	}
}

// loseSandbox stops a pod's sandbox behind the kubelet's back.
func (s space) loseSandbox(t *testing.T, pod string) {
	t.Helper()
	lost, err := s.sandbox(t.Context(), pod)
	check(t, err)
	check(t, lost.Stop(t.Context()))
}

// removeAgents takes the agents off all nodes, and bringAgents brings them back.
func removeAgents(t *testing.T) {
	t.Helper()
	t.Cleanup(func() { bringAgents(t) })
	agents(t, "patch", "daemonset", "capture-cni-node", "--patch", `{"spec": {"template": {"spec": {"nodeSelector": {"nowhere": "yes"}}}}}`)
	agents(t, "wait", "--for=jsonpath={.status.desiredNumberScheduled}=0", patience, "daemonset/capture-cni-node") // else it would make new ones
	agents(t, "delete", "pods", "--all", "--force", "--grace-period=0")
	eventually(t, func() error {
		for _, node := range c.Nodes {
			sandboxes, err := node.Sandboxes(t.Context())
			if err != nil {
				return err
			}
			for _, found := range sandboxes {
				if found.Namespace == cluster.Namespace {
					return fmt.Errorf("%s still runs %s", node.Name, found.Name)
				}
			}
		}
		return nil
	})
}

func bringAgents(t *testing.T) {
	t.Helper()
	agents(t, "patch", "daemonset", "capture-cni-node", "--patch", `{"spec": {"template": {"spec": {"nodeSelector": {"nowhere": null}}}}}`)
	agents(t, "rollout", "status", "daemonset/capture-cni-node", patience)
}

// agents runs kubectl where they are; also when the test is over.
func agents(t *testing.T, args ...string) string {
	t.Helper()
	out, err := c.Kubectl(context.WithoutCancel(t.Context()), "", append([]string{"--namespace", cluster.Namespace}, args...)...)
	check(t, err)
	return out
}

// edit changes our entry and has the runtime load it.
func edit(t *testing.T, node *cluster.Node, path, from, to string) {
	t.Helper()
	content, err := os.ReadFile(path)
	check(t, err)
	changed := strings.Replace(string(content), from, to, 1)
	if changed == string(content) {
		t.Fatalf("%s: no %s in it", path, from)
	}
	check(t, os.WriteFile(path, []byte(changed), 0o600))
	check(t, stir(node))
}

// stir has a runtime look at its configuration again.
func stir(node *cluster.Node) error {
	temporary := node.Path("/etc/cni/net.d/.stir")
	if err := os.WriteFile(temporary, nil, 0o600); err != nil {
		return err
	}
	return os.Remove(temporary)
}
