// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capture-cni/capture-cni/e2e/kubeapi"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
)

const startupTaint = "capture-cni.io/not-ready"

// taintedNode returns a node as it was registered, with its agent's pod.
func taintedNode(t *testing.T) *node {
	t.Helper()
	n := newNode(t)
	n.API.PutNode("node-1",
		corev1.Taint{Key: startupTaint, Effect: corev1.TaintEffectNoSchedule},
		corev1.Taint{Key: "other", Effect: corev1.TaintEffectNoSchedule})
	n.API.Put(agentPod())
	return n
}

func agentPod() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "mesh", Name: "agent", UID: "uid-of-the-agent"}}
}

// startUntainting runs the agent as in its pod.
func (n *node) startUntainting(t *testing.T, netConf string, args ...string) *machine.Agent {
	t.Helper()
	file := filepath.Join(t.TempDir(), "netconf.json")
	lab.Check(t, os.WriteFile(file, []byte(netConf), 0o600))
	identity := []string{"env", "POD_NAMESPACE=mesh", "POD_NAME=agent", "POD_UID=uid-of-the-agent"}
	return n.StartBehind(t, identity, append([]string{"--mode", "insert", "--netconf", file, "--untaint", startupTaint}, args...)...)
}

func (n *node) taints() (keys []string) {
	for _, taint := range n.API.Taints("node-1") {
		keys = append(keys, taint.Key)
	}
	return keys
}

func (n *node) expectUntainted(t *testing.T, a *machine.Agent) {
	t.Helper()
	lab.Eventually(t, func() error {
		if got := n.taints(); !slices.Equal(got, []string{"other"}) {
			return fmt.Errorf("the node has the taints %q\n%s", got, a.Log)
		}
		return a.ExpectMetric("capture_cni_taint 0")
	})
}

// TestUntaint expects the agent of a working node to remove the taint, with any
// configuration. A meshed pod that starts then is captured.
func TestUntaint(t *testing.T) {
	t.Parallel()
	for name, netConf := range map[string]string{"plain": `{}`, "agent's namespace excluded": `{"excludeNamespaces": ["mesh"]}`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := taintedNode(t)
			n.PreparePods(t)
			read := make(chan string, 1)
			n.API.Misbehave(func(_ http.ResponseWriter, r *http.Request) bool {
				if strings.Contains(r.URL.Path, "/pods/") {
					select {
					case read <- r.URL.Path:
					default:
					}
				}
				return false
			})
			a := n.startUntainting(t, netConf)
			n.expectUntainted(t, a)
			select {
			case path := <-read:
				if path != "/api/v1/namespaces/mesh/pods/agent" {
					t.Errorf("the plugin read %s", path)
				}
			default:
				t.Error("no pod was read")
			}
			if events := n.API.Events(); len(events) != 0 {
				t.Errorf("events %v", events)
			}
			lab.Check(t, n.StartAndStop(t, "web"))
		})
	}
}

// TestTaintStays has a fault on the node: the taint stays, and an Event says why.
// Where the test can repair the fault, the agent then removes the taint.
func TestTaintStays(t *testing.T) {
	t.Parallel()
	forbidden := func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/pods/") {
			kubeapi.WriteStatus(w, r, http.StatusForbidden, metav1.StatusReasonForbidden, "pods is forbidden")
			return true
		}
		return false
	}
	broken := filepath.Join(t.TempDir(), "broken")
	lab.Check(t, lab.WriteProgram(broken, []byte("#!/bin/sh\nexit 1\n")))
	for name, tt := range map[string]struct {
		damage func(n *node)
		args   []string
		reason string
		repair func(n *node)
	}{
		"plugin does not run": {args: []string{"--plugin", broken}, reason: "binary: "},
		"no permission": {
			damage: func(n *node) { n.API.Misbehave(forbidden) }, reason: `needs the permission "get pods"`,
			repair: func(n *node) { n.API.Misbehave(nil) },
		},
		"pod not found": {
			damage: func(n *node) { n.API.Delete("mesh", "agent") }, reason: "lookupTimeout of 1s leaves no time for a retry",
			repair: func(n *node) { n.API.Put(agentPod()) },
		},
		"no entry": {
			damage: func(n *node) { _ = os.Remove(n.NetDir + "/" + machine.PrimaryName) }, reason: "entry: ",
			repair: func(n *node) { _ = os.WriteFile(n.NetDir+"/"+machine.PrimaryName, []byte(machine.Kindnet), 0o644) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := taintedNode(t)
			if tt.damage != nil {
				tt.damage(n)
			}
			a := n.startUntainting(t, `{"lookupTimeout": "1s"}`, tt.args...)
			var event corev1.Event
			lab.Eventually(t, func() error {
				events := n.API.Events()
				for _, event = range events {
					if strings.Contains(event.Message, tt.reason) {
						return nil
					}
				}
				return fmt.Errorf("no event says %q: %v\n%s", tt.reason, events, a.Log)
			})
			if event.InvolvedObject.Name != "node-1" {
				t.Errorf("the event is on %s", event.InvolvedObject.Name)
			}
			if got := n.taints(); !slices.Equal(got, []string{startupTaint, "other"}) {
				t.Errorf("the node has the taints %q", got)
			}
			lab.Check(t, a.ExpectMetric("capture_cni_taint 1"))
			if tt.repair != nil {
				tt.repair(n)
				n.expectUntainted(t, a)
			}
		})
	}
}

// TestTaintRemovalDisabled expects no request about the node without --untaint.
func TestTaintRemovalDisabled(t *testing.T) {
	t.Parallel()
	n := taintedNode(t)
	n.API.Misbehave(func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/nodes/") {
			t.Errorf("%s %s", r.Method, r.URL.Path)
		}
		return false
	})
	n.Start(t, "--mode", "insert").Ready(t)
	out, err := n.Command("run", "--mode", "insert", "--untaint", startupTaint)
	if err == nil || !strings.Contains(out, "POD_NAME") {
		t.Errorf("without a pod: %v: %s", err, out)
	}
}
