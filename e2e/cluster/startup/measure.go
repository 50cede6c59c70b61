// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
)

// measure starts n pods on a node, some at once. It returns a line about how long each
// took from its creation until its first container began, init containers aside, and
// which processor time the machine took for one.
func (s *startup) measure(ctx context.Context, w way, node *cluster.Node, delay time.Duration, n, atOnce int) (line string, err error) {
	namespace := strings.ToLower(fmt.Sprintf("startup-%s-%d-%d-%d", w.name, node.Number, delay.Milliseconds(), atOnce))
	if err := s.createNamespace(ctx, namespace); err != nil {
		return "", err
	}
	began, busy, created := time.Now(), busyTime(), map[string]time.Time{}
	for i := 0; i < n; i += atOnce {
		var pods []*corev1.Pod
		for j := range atOnce {
			pods = append(pods, w.pod(fmt.Sprint("web-", i+j), node.Name))
		}
		times, err := s.start(ctx, namespace, pods)
		if err != nil {
			return "", err
		}
		maps.Copy(created, times)
	}
	running, spent := time.Since(began), busyTime()-busy
	runtime, err := node.CRI(ctx)
	if err != nil {
		return "", err
	}
	started, err := firstStarts(ctx, runtime, namespace)
	if err != nil {
		return "", err
	}
	var took []time.Duration
	for name, at := range created {
		first, ok := started[name]
		if !ok {
			return "", fmt.Errorf("the runtime has no container of %s", name)
		}
		took = append(took, first.Sub(at))
	}
	slices.Sort(took)
	if atOnce > 1 { // until the last container began, not until the kubelet had said so
		running = took[n-1]
	}
	where := "near"
	if delay > 0 {
		where = delay.String() + " away"
	}
	line = fmt.Sprintf("%s\t%s\t%s\t%d, %d at once\t%s\t%s\t%s\t%.1f\t%d", node.Runtime, where, w.name, n, atOnce,
		ms(took[n/2]), ms(took[n*9/10]), ms(took[n*99/100]), float64(n)/running.Seconds(), spent.Milliseconds()/int64(n))
	fmt.Fprintln(os.Stderr, "  "+strings.ReplaceAll(line, "\t", ", "))
	return line, s.deleteNamespace(ctx, namespace)
}

// start creates pods, and waits until all run. It returns when it created each.
func (s *startup) start(ctx context.Context, namespace string, pods []*corev1.Pod) (created map[string]time.Time, err error) {
	created = map[string]time.Time{}
	for _, pod := range pods {
		created[pod.Name] = time.Now()
		if err := s.api.Post().Namespace(namespace).Resource("pods").Body(pod).Do(ctx).Error(); err != nil {
			return nil, fmt.Errorf("creating pod %s: %w", pod.Name, err)
		}
	}
	return created, s.waitRunning(ctx, namespace, slices.Collect(maps.Keys(created)))
}

// createNamespace creates one in which pods can start.
func (s *startup) createNamespace(ctx context.Context, namespace string) error {
	if _, err := s.Kubectl(ctx, "", "create", "namespace", namespace); err != nil {
		return err
	}
	_, err := s.Kubectl(ctx, "", "--namespace", namespace, "wait", "--for=create", "serviceaccount/default")
	return err
}

// deleteNamespace waits until its pods have ended.
func (s *startup) deleteNamespace(ctx context.Context, namespace string) error {
	_, err := s.Kubectl(ctx, "", "delete", "namespace", namespace, "--timeout=5m")
	return err
}

func ms(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// waitRunning waits until pods run.
func (s *startup) waitRunning(ctx context.Context, namespace string, names []string) error {
	for deadline := time.Now().Add(cluster.Timeout); ; time.Sleep(20 * time.Millisecond) {
		list := &corev1.PodList{}
		if err := s.api.Get().Namespace(namespace).Resource("pods").VersionedParams(&metav1.ListOptions{ResourceVersion: "0"}, metav1.ParameterCodec).Do(ctx).Into(list); err != nil {
			return err
		}
		running := map[string]bool{}
		for _, pod := range list.Items {
			running[pod.Name] = pod.Status.Phase == corev1.PodRunning
		}
		waiting := slices.IndexFunc(names, func(name string) bool { return !running[name] })
		if waiting < 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("pod %s does not run after %s", names[waiting], cluster.Timeout)
		}
	}
}

// firstStarts returns when the first container of each pod began, init containers aside, by
// the runtime's clock, which is this machine's.
func firstStarts(ctx context.Context, runtime internalapi.RuntimeService, namespace string) (map[string]time.Time, error) {
	containers, err := runtime.ListContainers(ctx, &runtimeapi.ContainerFilter{LabelSelector: map[string]string{"io.kubernetes.pod.namespace": namespace}})
	if err != nil {
		return nil, err
	}
	first := map[string]time.Time{}
	for _, c := range containers {
		if c.Labels["io.kubernetes.container.name"] == "istio-init" {
			continue
		}
		status, err := runtime.ContainerStatus(ctx, c.Id, false)
		if err != nil {
			return nil, err
		}
		pod, at := c.Labels["io.kubernetes.pod.name"], time.Unix(0, status.Status.StartedAt)
		if before, ok := first[pod]; !ok || at.Before(before) {
			first[pod] = at
		}
	}
	return first, nil
}

// busyTime is the CPU time that all programs of the machine took: proc_stat(5).
func busyTime() (busy time.Duration) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(stat), "\n")
	for i, field := range strings.Fields(line)[1:] {
		ticks, _ := strconv.Atoi(field)
		if i != 3 && i != 4 { // idle, and waiting for a disk
			busy += time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	return busy
}
