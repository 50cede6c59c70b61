// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capture-cni/capture-cni/deploy/fleet"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/record"
)

const sampleUID = "6c1f8c3e-0b7a-4f0e-9d53-2f1f5a1d9f01"

var sampleTime = time.Date(2026, 11, 25, 9, 30, 0, 0, time.UTC)

// sampleCluster returns a cluster with a captured pod, a pod that runs uncaptured, one that does not
// start, one with rules of another version, one that is exempt, and a node whose agent has stopped
// reporting.
func sampleCluster(t *testing.T) *cluster {
	c := newCluster(t)
	c.set.Status = appsv1.DaemonSetStatus{DesiredNumberScheduled: 2, UpdatedNumberScheduled: 2, NumberReady: 1, NumberUnavailable: 1}
	c.addNode("node-1", time.Minute, state(&report.Pods{
		States: map[report.Code]int{report.Captured: 1, report.Uncaptured: 1, report.Outdated: 1, report.Exempt: 1},
		Exempt: map[capture.ExemptionCause]int{capture.InjectFalse: 1},
		Named: []report.NamedPod{
			{Namespace: "shop", Name: "cart", State: report.Uncaptured},
			{Namespace: "shop", Name: "mail", State: report.Exempt, Cause: capture.InjectFalse},
			{Namespace: "shop", Name: "stock", State: report.Outdated, Rules: 4},
		},
	}))
	c.addNode("node-2", 20*time.Minute, state(&report.Pods{}))
	created := func(pod *corev1.Pod) {
		pod.UID, pod.CreationTimestamp = sampleUID, metav1.NewTime(sampleTime)
	}
	for _, name := range []string{"web", "cart", "mail", "stock"} {
		c.addPod("node-1", name, created)
	}
	c.addPod("node-1", "pay", func(pod *corev1.Pod) {
		created(pod)
		pod.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionFalse}}}
	})
	return c
}

// sampleExplanation returns the output of explain about a pod, if the agent gives this answer.
func sampleExplanation(t *testing.T, c *cluster, pod string, answer report.Explanation) string {
	t.Helper()
	answer.Form, answer.Namespace, answer.Name, answer.UID, answer.Sandbox = report.ExplanationForm, "shop", pod, sampleUID, "9b1d2f0c3a7e"
	answers := func(_ context.Context, _ fleet.Agent, _ string, _ []string, out io.Writer) error {
		return json.NewEncoder(out).Encode(answer)
	}
	e, err := fleet.Explainer{Client: c.client(t), Exec: answers, Namespace: fleet.DefaultNamespace, Version: "v0.4.0"}.Explain(t.Context(), "shop", pod)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	writeExplanation(&out, e)
	return out.String()
}

// TestColumns expects the output about a usual cluster to fit a terminal. URLs and commands, which users
// copy, are not wrapped.
func TestColumns(t *testing.T) {
	t.Parallel()
	c := sampleCluster(t)
	long := state(&report.Pods{})
	long.Findings = report.Findings{{
		Code: report.PluginMissing, Severity: report.Problem, Subject: "binary", Next: "mount the directory writable, or set paths.binDirs to the directory that the runtime reads",
		Reason: "writing /opt/cni/bin/capture-cni: open /opt/cni/bin/.capture-cni-1: read-only file system",
	}}
	c.addNode("ip-10-0-1-7", time.Minute, long)
	c.addPod("ip-10-0-1-7", "frontend-7d9f8b6c5d-x2x4z", nil)
	failed := "asking the node agent at /run/capture-cni/sockets/pods.sock: no answer within 2s; reading pod shop/pay from https://10.96.0.1:443: Unauthorized [add-lookup]"
	c.events = []corev1.Event{{InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "pay"}, Type: "Warning", Reason: "CaptureFailed", Message: failed}}
	status, _, _ := c.run(t, "status")
	list, _, _ := c.run(t, "list")
	for name, out := range map[string]string{"status": status, "list": list, "explain": sampleExplanation(t, c, "pay", report.Explanation{
		Examined: true, NetNS: "/var/run/netns/cni-6c1f8c3e-0b7a-4f0e-9d53-2f1f5a1d9f01", State: report.Drifted,
		Because:     "chain nat_ISTIO_OUTPUT of table inet capture-cni has 9 rules in place of 11: rule 3 is missing, rule 4 differs",
		Kernel:      &report.Kernel{Backend: "nftables", Stamp: "v5 ipv4+ipv6 0123456789abcdef0123456789abcdef"},
		Annotations: []report.PodAnnotation{{Key: "traffic.sidecar.istio.io/excludeOutboundPorts", Created: &report.Value{Text: "80,443,8080"}}},
		Add:         &record.Record{Time: sampleTime, Verdict: record.Failed, Reason: capture.ReasonLookup, Message: failed},
	})} {
		if !strings.Contains(out, "Codes: ") {
			t.Errorf("%s has no address of the codes", name)
		}
		for line := range strings.Lines(out) {
			if text := strings.TrimSuffix(line, "\n"); utf8.RuneCountInString(text) > 80 && !strings.Contains(text, "kubectl ") && !strings.Contains(text, "https://") || strings.HasSuffix(text, " ") {
				t.Errorf("%s prints a line of %d columns: %q", name, utf8.RuneCountInString(text), text)
			}
		}
	}
}

// TestSamples expects the guide for debugging to show the current output of explain.
func TestSamples(t *testing.T) {
	t.Parallel()
	c := sampleCluster(t)
	failing := sampleExplanation(t, c, "pay", report.Explanation{Add: &record.Record{
		Time: sampleTime.Add(2 * time.Second), Verdict: record.Failed, Reason: capture.ReasonAnnotations, Code: 100,
		Message: `annotation traffic.sidecar.istio.io/excludeOutboundPorts: "http": "http": expected a decimal port number from 0 to 65535`,
	}})
	const document = "../guides/debug.md"
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	sample := strings.NewReplacer("agent-node-1", "capture-cni-node-7fk2p", "agent-node-2", "capture-cni-node-x9d4m").Replace(failing)
	if !strings.Contains(string(text), "```text\n"+sample+"```") {
		t.Errorf("%s has no block with this output:\n%s", document, sample)
	}
}
