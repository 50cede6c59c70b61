// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
)

// What the largest accepted pod may take, many times what it does.
const (
	expandedTime   = time.Minute
	expandedMemory = 512 << 20 // allocated in all by the plugin, and the most of one program
)

// listedPod is a pod with lists of these lengths.
func listedPod(reroute, include, exclude, excludedInterfaces int, env map[string]string, mode string) *corev1.Pod {
	join := func(n int, element func(i int) string) string {
		elements := make([]string, n)
		for i := range elements {
			elements[i] = element(i)
		}
		return strings.Join(elements, ",")
	}
	ranges := func(i int) string { return oddRange(i/2, family(i%2)) }
	annotations := map[string]string{
		"istio.io/reroute-virtual-interfaces": join(reroute, func(i int) string { return fmt.Sprintf("reroute-%d", i) }),
		"excludeInterfaces":                   join(excludedInterfaces, func(i int) string { return fmt.Sprintf("exclude-%d", i) }),
		"excludeOutboundIPRanges":             join(exclude, ranges),
		"sidecar.istio.io/interceptionMode":   mode,
	}
	if include > 0 {
		annotations["includeOutboundIPRanges"] = join(include, ranges)
	}
	return injected(spelled(annotations), env)
}

// someListedPod draws lists, often of about the length that is the most.
func someListedPod(r *rand.Rand) *corev1.Pod {
	length := func(most int) int { return int(float64(most) * r.Float64() * r.Float64()) }
	env := map[string]string{"ISTIO_META_DNS_CAPTURE": pick(r, "true", "false"), "INVALID_DROP": pick(r, "true", "false")}
	reroute := 1 + length(300)
	return listedPod(reroute, min(18_000, length(60_000)/reroute), length(10_000), length(2_000), env, pick(r, "REDIRECT", "TPROXY"))
}

// TestExpanded writes the largest pods that Decide accepts: each backend writes them within
// bounds, reads the same back, and removes all. With -soak it draws more pods.
func TestExpanded(t *testing.T) {
	lab.RequireRoot(t)
	pods := []*corev1.Pod{ // at the limit
		listedPod(121, 240, 0, 0, nil, "REDIRECT"),
		listedPod(1, 0, 14_000, 0, captureDNS, "REDIRECT"),
		listedPod(0, 0, 0, 5_800, captureDNS, "TPROXY"),
	}
	for n := uint64(0); *soak > 0 && n < 10; n++ {
		pod := someListedPod(rand.New(rand.NewPCG(*seed, n)))
		if _, err := lab.Decide(pod, dualStack(), podAddresses()...); err == nil {
			pods = append(pods, pod)
		} else if _, ok := errors.AsType[capture.BadInput](err); !ok {
			t.Errorf("pod %d of seed %d: %v", n, *seed, err)
		}
	}
	for _, backend := range backends {
		for i, pod := range pods {
			t.Run(fmt.Sprintf("%s, pod %d", backend, i), func(t *testing.T) { expectHandled(t, pod, backend) })
		}
	}
}

func expectHandled(t *testing.T, pod *corev1.Pod, backend config.Backend) {
	t.Helper()
	rs := decide(t, pod, dualStack())
	host := lab.StartHost(t)
	netns := open(t, host, backend)
	ctx, cancel := context.WithTimeout(t.Context(), expandedTime)
	defer cancel()
	took := map[string]time.Duration{}
	step := func(name string, do func() error) {
		began := time.Now()
		if err := do(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		took[name] = time.Since(began).Round(time.Millisecond)
	}
	before := allocated()
	step("apply", func() error { return netns.Namespace.Apply(ctx, rs, backend) })
	memory := allocated() - before
	step("check", func() error {
		differences, err := netns.differences(ctx, rs)
		if len(differences) > 0 {
			err = errors.Join(err, fmt.Errorf("differences: %.1000q", differences))
		}
		return err
	})
	step("remove", func() error { return netns.Namespace.Remove(ctx) })
	var left netfilter.State
	lab.Check(t, host.Do(func() (err error) {
		left, err = netfilter.Inspect(ctx)
		return err
	}))
	if left != (netfilter.State{}) {
		t.Errorf("removal left %+v", left)
	}
	var programs unix.Rusage
	lab.Check(t, unix.Getrusage(unix.RUSAGE_CHILDREN, &programs))
	t.Logf("%v, %d MiB allocated, programs %d MiB", took, memory>>20, programs.Maxrss>>10)
	if memory > expandedMemory || programs.Maxrss<<10 > expandedMemory {
		t.Errorf("allocated %d MiB, programs up to %d MiB", memory>>20, programs.Maxrss>>10)
	}
}

func allocated() uint64 {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return memory.TotalAlloc
}
