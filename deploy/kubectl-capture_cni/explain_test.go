// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/deploy/fleet"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// TestExplain expects first the cause, then the evidence, and then the next step.
func TestExplain(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.addNode("node-1", time.Minute, state(&report.Pods{}))
	c.addPod("node-1", "web", nil)
	c.addPod("node-1", "plain", func(pod *corev1.Pod) { pod.Annotations = nil })
	c.events = []corev1.Event{{
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "web"}, Type: "Warning", Reason: "CaptureMissing", Message: "\x1b[31mnot captured",
	}}
	out, _, status := c.run(t, "explain", "shop/web") // this API server executes no commands
	if status != 2 || strings.Contains(out, "\x1b") {
		t.Errorf("status %d: %q", status, out)
	}
	expect(t, out, "shop/web on node node-1: unknown\n", "\nCause\n  the guard did not explain the pod", "\nEvidence\n", "event: Warning CaptureMissing, 1 times", "?[31mnot captured",
		"pod: Running", "node: ready, agent v0.4.0", "agent agent-node-1, container guard: not known: executing /capture-cni-node explain --output=json shop/web", "\nNext\n  ")
	out, _, status = c.run(t, "explain", "shop/plain")
	if status != 0 {
		t.Errorf("a pod outside the mesh: status %d", status)
	}
	expect(t, out, "shop/plain on node node-1: not in the mesh", "no annotation sidecar.istio.io/status", "enable injection (istio-injection=enabled")
	out, _, status = c.run(t, "explain", "shop/none", "-o", "json")
	var e fleet.Explanation
	if err := json.Unmarshal([]byte(out), &e); err != nil || status != 1 || e.State != report.Gone {
		t.Errorf("status %d: %+v, %v", status, e, err)
	}
	for _, argument := range []string{"shop/", "/web", "shop/web/x"} {
		if _, errors, status := c.run(t, "explain", argument); status != 2 || !strings.Contains(errors, "expected POD, NAMESPACE/POD") {
			t.Errorf("%s: status %d, %s", argument, status, errors)
		}
	}
	c.denied = "events"
	out, _, _ = c.run(t, "explain", "shop/web")
	expect(t, out, "events: not known: listing the Events of pod shop/web", "forbidden")
}

// TestExplainSaysTheCauseOnce has a cause that Events of two kinds and the agent's record repeat.
// explain prints the cause once.
func TestExplainSaysTheCauseOnce(t *testing.T) {
	t.Parallel()
	const cause = "annotation a: \"x\": expected a port\nannotation b: \"y\": expected a port"
	e := fleet.Explanation{Pod: "shop/web", State: report.NotStarted, Finding: report.Finding{Reason: "its ADD fails: " + cause}}
	for _, sandbox := range []string{"4ed19b1d2f0c3a7e4ed19b1d", "9b1d2f0c3a7e4ed19b1d4ed1", "2f0c3a7e4ed19b1d9b1d4ed1"} {
		e.Evidence.Events = append(e.Evidence.Events, fleet.EventEvidence{Reason: "FailedCreatePodSandBox", Count: 2, Message: "sandbox " + sandbox + ": plugin failed (add): " + cause})
	}
	e.Evidence.Events = append(e.Evidence.Events, fleet.EventEvidence{Reason: "CaptureFailed", Count: 1, Message: cause})
	e.Evidence.Agent = &fleet.AgentEvidence{Answer: report.Explanation{Add: &record.Record{Message: cause, Verdict: record.Failed}}}
	var out strings.Builder
	writeExplanation(&out, &e)
	if got := strings.Count(out.String(), "expected a port"); got != 2 {
		t.Errorf("two lines of the cause are written as %d:\n%s", got, out.String())
	}
	expect(t, out.String(), "FailedCreatePodSandBox, 2 times", "sandbox 2f0c3a7e4ed19b1d9b1d4ed1: plugin failed (add): (the cause above)", "CaptureFailed, 1 times", "last ADD", "(the cause above)")
}

// TestAllFaults expects each line of a cause, because an ADD names all wrong annotations.
func TestAllFaults(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	writeExplanation(&out, &fleet.Explanation{Pod: "shop/web", State: report.NotStarted, Finding: report.Finding{Reason: "its ADD fails: first\nsecond \x1b[2J"}})
	expect(t, out.String(), "\nCause\n  its ADD fails: first\n  second ?[2J\n")
}
