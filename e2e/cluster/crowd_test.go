// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
)

// TestCrowd creates a hundred pods at once, of which sixty are meshed: all get
// ready, each of them holds what it should.
func TestCrowd(t *testing.T) {
	install(t)
	s := newSpace(t, restricted, cluster.Injected)
	var pods []*corev1.Pod
	for i := range 100 {
		pod := newPod(fmt.Sprintf("web-%d", i), c.Nodes[i%len(c.Nodes)].Name, "pause")
		if i%5 >= 3 {
			unmeshed(pod)
		}
		pods = append(pods, pod)
	}
	started := time.Now()
	s.create(t, pods...)
	s.kubectl(t, "", "wait", "--for=condition=Ready", "--timeout=180s", "pod", "--all")
	t.Logf("100 pods are ready after %s", time.Since(started).Round(100*time.Millisecond))

	meshed := map[string]bool{}
	for _, pod := range pods {
		meshed[pod.Name] = pod.Labels["sidecar.istio.io/inject"] != "false"
	}
	seen := 0
	for _, node := range c.Nodes {
		sandboxes, err := node.Sandboxes(t.Context())
		check(t, err)
		for _, sandbox := range sandboxes {
			if sandbox.Namespace != s.name || !sandbox.Ready {
				continue
			}
			seen++
			if rules := rulesOf(t, sandbox); (rules.Backend != "") != meshed[sandbox.Name] || rules.Foreign != "" {
				t.Errorf("%s, meshed %v, holds %+v", sandbox.Name, meshed[sandbox.Name], rules)
			}
		}
	}
	if seen != len(pods) {
		t.Errorf("%d sandboxes, want %d", seen, len(pods))
	}
}

// TestTimeToReady prints what capture costs a pod that starts: with no capture
// at all, with the plugin, and with an init container that applies the same rules.
func TestTimeToReady(t *testing.T) {
	install(t)
	for _, way := range []struct{ name, label string }{
		{"no capture", "test.local/nothing=yes"},
		{"capture-cni", cluster.Injected},
		{"istio-init", cluster.InjectedWithInit},
	} {
		s := newSpace(t, way.label)
		var times []time.Duration
		for i := range 20 {
			pod := newPod(fmt.Sprintf("web-%d", i), c.Nodes[0].Name, "pause")
			pod.Annotations["sidecar.istio.io/nativeSidecar"] = "false"
			if way.label == "test.local/nothing=yes" {
				pod.Spec.Containers = append(pod.Spec.Containers, *pod.Spec.Containers[0].DeepCopy())
				pod.Spec.Containers[1].Name = "another" // as many as the others have
			}
			started := time.Now()
			s.run(t, pod)
			times = append(times, time.Since(started))
			s.kubectl(t, "", "delete", "pod", pod.Name, "--wait=false")
		}
		slices.Sort(times)
		t.Logf("%-12s from creation to ready, median of %d pods: %s", way.name, len(times), times[len(times)/2].Round(time.Millisecond))
	}
}
