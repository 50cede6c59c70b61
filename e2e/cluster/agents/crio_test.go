// SPDX-License-Identifier: Apache-2.0

package agents

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/cri"
)

// TestCRIORestarts ends CRI-O and starts it again. It runs CHECK for each pod: one whose
// CHECK fails has no address then, and the kubelet replaces its sandbox when it next reads
// that. This happens to the pod without its rules, and to no other.
func TestCRIORestarts(t *testing.T) {
	node := crioNode(t)
	c.InstallChart(t, "guard.enabled=false", "netconf.mesh.inboundPort=15106")
	n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
	older := suite.Server("older", node.Name)
	n.Run(t, older)
	c.InstallChart(t, "guard.enabled=false")
	meshed, plain, broken := suite.Server("meshed", node.Name), suite.Unmeshed(suite.Server("plain", node.Name)), suite.Server("broken", node.Name)
	n.Run(t, meshed, plain, broken)
	for name, end := range map[string]func() error{"stopped": node.StopRuntime, "killed": node.KillRuntime} {
		t.Run(name, func(t *testing.T) {
			keep := []*corev1.Pod{older, meshed, plain}
			before := sandboxIDs(t, n, append(keep, broken)...)
			nft(t, n, "broken", "delete", "table", "inet", "capture-cni")
			lab.Check(t, end())
			lab.Check(t, node.StartRuntime(t.Context()))
			lab.Check(t, errors.Join(node.StopKubelet(), node.StartKubelet()))
			lab.Eventually(t, func() error {
				sandbox, err := n.Sandbox(t.Context(), "broken")
				if err == nil && sandbox.ID == before["broken"] {
					err = errors.New("the pod without rules still has its sandbox")
				}
				return err
			})
			n.WaitReady(t, append(keep, broken)...)
			n.ExpectCaptured(t, "broken")
			n.ExpectCaptured(t, "meshed")
			for name, now := range sandboxIDs(t, n, keep...) {
				if now != before[name] {
					t.Errorf("%s has got another sandbox", name)
				}
			}
		})
	}
	n.Delete(t, older, meshed, plain, broken)
}

// crioNode returns the node that runs CRI-O.
func crioNode(t *testing.T) *cluster.Node {
	t.Helper()
	for _, node := range c.Nodes {
		if node.Runtime == cluster.CRIO {
			return node
		}
	}
	t.Fatal("no node runs CRI-O")
	return nil
}

func sandboxIDs(t *testing.T, n suite.Namespace, pods ...*corev1.Pod) map[string]string {
	t.Helper()
	ids := map[string]string{}
	for _, pod := range pods {
		sandbox, err := n.Sandbox(t.Context(), pod.Name)
		lab.Check(t, err)
		ids[pod.Name] = sandbox.ID
	}
	return ids
}

// TestEvents expects an event of each pod that starts, from the runtimes that send each
// event to all listeners.
func TestEvents(t *testing.T) {
	n := c.NewNamespace(t, suite.Restricted)
	for _, node := range c.Nodes {
		t.Run(string(node.Runtime), func(t *testing.T) {
			client, err := cri.New(node.Socket())
			lab.Check(t, err)
			defer func() { lab.Check(t, client.Close()) }()
			ctx, stop := context.WithTimeout(t.Context(), cluster.Timeout)
			defer stop()
			connected, started, ended := make(chan struct{}), make(chan struct{}, 100), make(chan error, 1)
			go func() {
				ended <- client.Listen(ctx, func() { close(connected) }, func() { started <- struct{}{} })
			}()
			if node.Runtime == cluster.Debian1 {
				if err := <-ended; !errors.Is(err, cri.ErrNoEvents) {
					t.Errorf("listening ends with %v", err)
				}
				return
			}
			receive(t, connected, ended)
			pod := suite.NewPod("starts-"+node.Name, node.Name, "pause")
			n.Run(t, pod)
			receive(t, started, ended)
			n.Delete(t, pod)
		})
	}
}

// receive waits for a signal, and fails the test if listening has ended.
func receive(t *testing.T, signal <-chan struct{}, ended <-chan error) {
	t.Helper()
	select {
	case <-signal:
	case err := <-ended:
		t.Fatalf("listening ends with %v", err)
	}
}
