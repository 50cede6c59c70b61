// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
)

// TestCrowd creates a hundred meshed pods at once, and some others, while the API server
// answers the agents late. All become ready, no ADD fails, and exactly the meshed pods
// are captured. The agents know them from their watch; on a busy machine, some plugins
// do not wait for their agent.
func TestCrowd(t *testing.T) {
	slowAPI(t, 500*time.Millisecond)
	c.InstallChart(t, "guard.enabled=false") // the plugin alone asks
	n := c.NewNamespace(t, suite.Restricted)
	const crowd, few = 100, 10
	meshed := map[string]*corev1.Pod{}
	var pods []*corev1.Pod
	for i := range crowd + 10 {
		pod := suite.NewPod(fmt.Sprintf("web-%d", i), c.Nodes[i%len(c.Nodes)].Name, "pause")
		if i < crowd { // injected, but for the application's container
			pod.Annotations["sidecar.istio.io/status"] = "{}"
			pod.Spec.Containers[0].Name = "istio-proxy"
			meshed[pod.Name] = pod
		}
		pods = append(pods, pod)
	}
	before := podRequests(t)
	started := time.Now()
	n.Create(t, pods...)
	n.Kubectl(t, "", "wait", "--for=condition=Ready", suite.KubectlTimeout, "pod", "--all")
	t.Logf("%d pods are ready after %s", len(pods), time.Since(started).Round(100*time.Millisecond))
	events := n.Kubectl(t, "", "get", "events", "--field-selector", "reason=FailedCreatePodSandBox", "-o", "jsonpath={.items[*].message}")
	if strings.Contains(events, `"capture-cni" failed`) { // on a busy machine, ptp waits too short for its addresses
		t.Errorf("sandboxes failed: %s", events)
	}
	after := podRequests(t)
	watched, read := after["watch"]-before["watch"], after["read"]-before["read"]
	if watched < crowd*3/4 || read > few {
		t.Errorf("the agents answered %d requests by the watch and %d by a read; want most of %d by the watch, at most %d by a read", watched, read, crowd, few)
	}
	t.Logf("the agents answered %d requests by the watch and %d by a read; %d were not answered", watched, read, after["fault"]-before["fault"])

	seen := 0
	for _, node := range c.Nodes {
		sandboxes, err := node.Sandboxes(t.Context())
		lab.Check(t, err)
		for _, sandbox := range sandboxes {
			if sandbox.Namespace != n.Name {
				continue
			}
			seen++
			if pod := meshed[sandbox.Name]; pod != nil {
				if err := suite.CheckCaptured(t.Context(), sandbox, pod); err != nil {
					t.Error(err)
				}
			} else if rules := suite.Rules(t, sandbox); rules != (netfilter.State{}) {
				t.Errorf("%s, which is not in the mesh, has the rules %+v", sandbox.Name, rules)
			}
		}
	}
	if seen != len(pods) {
		t.Errorf("%d sandboxes, want %d", seen, len(pods))
	}
	n.Kubectl(t, "", "delete", "pod", "--all", suite.KubectlTimeout) // the next test measures times
}

// slowAPI has the API server answer agents late that start from now on, until the test
// ends.
func slowAPI(t *testing.T, delay time.Duration) {
	t.Helper()
	for _, node := range c.Nodes {
		restore, err := node.SlowAPI(t.Context(), delay)
		lab.Check(t, err)
		t.Cleanup(func() { lab.Check(t, restore()) })
	}
}

// podRequests returns how many requests of pods all agents have answered, by source.
func podRequests(t *testing.T) map[string]int {
	t.Helper()
	sum := map[string]int{}
	for _, node := range c.Nodes {
		for source, count := range suite.PodRequests(t, node) {
			sum[source] += count
		}
	}
	return sum
}

// TestTimeToReady prints how long a pod takes to become ready: without capture,
// with the plugin, and with an init container that applies the same rules.
func TestTimeToReady(t *testing.T) {
	c.InstallChart(t)
	const lanes, each = 4, 2
	for _, way := range []struct {
		name, label string
		containers  int // before injection: all have two in the end
	}{
		{"no capture", "test.local/injection=none", 2},
		{"capture-cni", cluster.Injected, 1},
		{"istio-init", cluster.InjectedWithInit, 1},
	} {
		n := c.NewNamespace(t, way.label)
		var mu sync.Mutex
		var times []time.Duration
		var group sync.WaitGroup
		for lane := range lanes {
			group.Go(func() {
				for i := range each {
					took, err := timeToReady(t.Context(), n, way.containers, fmt.Sprintf("web-%d-%d", lane, i), c.Nodes[lane%len(c.Nodes)].Name)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					times = append(times, took)
					mu.Unlock()
				}
			})
		}
		group.Wait()
		if t.Failed() {
			return
		}
		slices.Sort(times)
		t.Logf("%-12s from creation to ready, median of %d pods: %s", way.name, len(times), times[len(times)/2].Round(time.Millisecond))
	}
}

// timeToReady runs a pod with that many containers, and deletes it.
func timeToReady(ctx context.Context, n suite.Namespace, containers int, name, node string) (time.Duration, error) {
	pod := suite.NewPod(name, node, "pause")
	pod.Annotations["sidecar.istio.io/nativeSidecar"] = "false"
	for i := 1; i < containers; i++ {
		another := pod.Spec.Containers[0].DeepCopy()
		another.Name = fmt.Sprintf("app-%d", i)
		pod.Spec.Containers = append(pod.Spec.Containers, *another)
	}
	started := time.Now()
	if err := n.TryCreate(ctx, pod); err != nil {
		return 0, err
	}
	_, err := c.Kubectl(ctx, "", "--namespace", n.Name, "wait", "--for=condition=Ready", suite.KubectlTimeout, "pod/"+name)
	took := time.Since(started)
	if err != nil {
		return 0, err
	}
	_, err = c.Kubectl(ctx, "", "--namespace", n.Name, "delete", "pod", name, "--wait=false")
	return took, err
}
