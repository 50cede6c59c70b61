// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/deploy/fleet"
	"github.com/capture-cni/capture-cni/install/report"
)

// TestStatusGroupsOnlyWhatIsAlike has nine pods of three meshes that do not start for two causes, and
// nodes with a fault whose texts differ only in names and addresses.
func TestStatusGroupsOnlyWhatIsAlike(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.set.Spec.Template.Spec.Containers = []corev1.Container{{Name: "installer", Env: []corev1.EnvVar{{Name: fleet.NetConfVariable, Value: `{"meshes":["istio","linkerd","capture-cni"]}`}}}}
	marks := []string{"sidecar.istio.io/status", "linkerd.io/proxy-version", "capture-cni.io/capture"}
	for i := range 15 {
		node, name := fmt.Sprintf("node-%d", i%3), fmt.Sprintf("pod-%d", i)
		c.addPod(node, name, func(pod *corev1.Pod) {
			pod.Annotations = map[string]string{marks[i/5]: "enabled"}
			if i/5 == 1 {
				pod.Spec.Containers[1].Name = "linkerd-proxy"
			}
			pod.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionFalse}}}
		})
		message := fmt.Sprintf("reading pod shop/%s, UID 6c1f8c3e-0b7a-4f0e-9d53-2f1f5a1d9f%02d, from 10.0.0.%d:6443: no answer within %d.5s", name, i, i, i)
		if i == 4 {
			message = "annotation excludeOutboundPorts: expected ports"
		}
		c.events = append(c.events, corev1.Event{InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: name}, Reason: "CaptureFailed", Message: message})
	}
	for i := range 6 {
		fault := state(&report.Pods{})
		fault.Findings = report.Findings{{Severity: report.Warning, Reason: fmt.Sprintf("pod shop/p%d, UID 6c1f8c3e-0b7a-4f0e-9d53-2f1f5a1d9f%02d: 10.0.0.%d:6443 does not answer", i, i, i), Next: "look"}}
		if i == 5 {
			fault.Findings[0].Reason = "pod shop/p5: the kernel has no nf_tables"
		}
		c.addNode(fmt.Sprintf("node-%d", i), time.Minute, fault)
	}
	out, _, _ := c.run(t, "status")
	rows, ago := map[string]string{}, regexp.MustCompile(`\S+ ago `)
	for line := range strings.Lines(unwrapped(out)) {
		if fields := strings.Fields(line); len(fields) > 2 && (fields[0] == "shop" || strings.HasPrefix(fields[0], "node-")) {
			rows[ago.ReplaceAllString(strings.Join(fields[:min(len(fields), 12)], " "), "")] = line
		}
	}
	for _, want := range []string{
		"shop pod-0 and 3 more istio 3 nodes not started reading", "shop pod-4 istio node-1 not started annotation excludeOutboundPorts: expected ports",
		"shop pod-10 and 4 more capture-cni 3 nodes not started reading", "shop pod-5 and 4 more linkerd 3 nodes not started reading",
		"node-0 and 4 more faulty pod shop/p0", "node-5 faulty pod shop/p5: the kernel has no",
	} {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(rows)), func(row string) bool { return strings.HasPrefix(row, want) }) {
			t.Errorf("no row %q in\n%s", want, out)
		}
	}
}

// TestFailuresNotKnown expects a note about the missing permission to list Events, and the other parts
// of the output.
func TestFailuresNotKnown(t *testing.T) {
	t.Parallel()
	c := sampleCluster(t)
	c.denied = "/events"
	out, _, status := c.run(t, "status")
	if status != 1 {
		t.Errorf("status %d", status)
	}
	expect(t, out, "not started  unknown", "Note: why pods do not start is not known", "ClusterRole capture-cni-operator has the missing permission (list events)")
}

// TestCauseClass compares pairs of causes, some of which describe the same fault.
func TestCauseClass(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		a, b  string
		alike bool
	}{
		"UIDs":        {"UID 6c1f8c3e-0b7a-4f0e-9d53-2f1f5a1d9f01 is gone", "UID 6c1f8c3e-0b7a-4f0e-9d53-2f1f5a1d9f02 is gone", true},
		"addresses":   {"dial tcp 10.0.0.1:6443: refused", "dial tcp 10.0.0.17:6443: refused", true},
		"IPv6":        {"dial tcp [fd00::1]:443: refused", "dial tcp [fd00:1::2]:443: refused", true},
		"times":       {"at 2026-11-26T21:44:48Z: no", "at 2026-11-25T01:04:08.5+01:00: no", true},
		"durations":   {"no answer within 1m0s", "no answer within 30s", true},
		"containers":  {"sandbox 4ed19b1d2f0c3a7e is gone", "sandbox 9b1d2f0c3a7e is gone", true},
		"pods":        {"pod shop/web: no proxy", "pod bank/db-0: no proxy", true},
		"own name":    {"container x of a-1 ended", "container x of b-1 ended", true},
		"annotations": {"annotation sidecar.istio.io/inject: wrong", "annotation traffic.sidecar.istio.io/kubevirtInterfaces: wrong", false},
		"status":      {"exit status 1", "exit status 2", false},
		"words":       {"dial tcp 10.0.0.1:6443: refused", "dial tcp 10.0.0.1:6443: no route", false},
		"files":       {"reading /etc/cni/net.d/10-a.conflist: empty", "reading /etc/cni/net.d/20-b.conflist: empty", false},
		"a part":      {"container a-10 ended", "container b-10 ended", false},
	} {
		if alike := causeClass(tt.a, "a-1") == causeClass(tt.b, "b-1"); alike != tt.alike {
			t.Errorf("%s: %q and %q: alike %v", name, causeClass(tt.a, "a-1"), causeClass(tt.b, "b-1"), alike)
		}
	}
}

// TestGroups groups random pods. No pod is lost, each group has only one finding, up to maxAlike pods
// with the same finding have rows of their own, and the groups have the order of their first pods.
func TestGroups(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		var pods []fleet.Pod
		for i := range random.IntN(40) {
			pods = append(pods, fleet.Pod{
				Name: fmt.Sprint(i), Mesh: "istio", State: []report.Code{report.Uncaptured, report.NotStarted}[random.IntN(2)],
				Failure: []string{"", "no answer in 1s", "no answer in 2s", "refused"}[random.IntN(4)],
			})
		}
		next, total := 0, 0
		seen := map[finding]int{}
		for _, group := range groups(pods, findingOfPod) {
			total += len(group)
			seen[findingOfPod(group[0])]++
			for next < len(pods) && slices.ContainsFunc(pods[:next], func(p fleet.Pod) bool { return findingOfPod(p) == findingOfPod(pods[next]) }) && group[0].Name != pods[next].Name {
				next++
			}
			if group[0].Name != pods[next].Name {
				t.Fatalf("%s takes the place of %s", group[0].Name, pods[next].Name)
			}
			next++
			for _, pod := range group {
				if findingOfPod(pod) != findingOfPod(group[0]) {
					t.Fatalf("%+v is hidden by %+v", pod, group[0])
				}
			}
			if len(group) > 1 && len(group) <= maxAlike {
				t.Fatalf("%d are folded", len(group))
			}
		}
		if total != len(pods) {
			t.Fatalf("%d of %d pods", total, len(pods))
		}
		for finding, rows := range seen {
			if rows > maxAlike {
				t.Fatalf("%d rows for %+v", rows, finding)
			}
		}
	}
}
