// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/deploy/fleet"
	"github.com/capture-cni/capture-cni/install/report"
)

// expect fails the test unless the output contains the texts in this order.
func expect(t *testing.T, output string, want ...string) {
	t.Helper()
	missing := func(rest string) string {
		for _, text := range want {
			_, after, found := strings.Cut(rest, text)
			if !found {
				return text
			}
			rest = after
		}
		return ""
	}
	if text := missing(output); text != "" && missing(unwrapped(output)) != "" {
		t.Errorf("%q is missing, or not in its place, in:\n%s", text, output)
	}
}

// unwrapped returns an output in which wrapped texts are single lines again.
func unwrapped(output string) string {
	return regexp.MustCompile(`\n {4,}`).ReplaceAllString(output, " ")
}

func TestStatusOfAGoodFleet(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.addNode("node-1", time.Minute, state(&report.Pods{States: map[report.Code]int{"captured": 2}}))
	out, _, status := c.run(t, "status")
	if status != 0 || strings.Contains(out, "NODE") {
		t.Errorf("status %d:\n%s", status, out)
	}
	expect(t, out, "nodes     1 ready", "agents    0 desired, 0 updated, 0 ready", "versions  1 v0.4.0", "pods      2 captured")
	out, _, _ = c.run(t, "status", "-o", "wide")
	expect(t, out, "NODE", "VERSION", "node-1", "ready", "v0.4.0", "dropin", "agent-node-1")
	for line := range strings.Lines(out) {
		if columns := utf8.RuneCountInString(line) - 1; columns > 80 {
			t.Errorf("a line of -o wide has %d columns: %s", columns, line)
		}
	}
}

// TestStatus expects the findings and next steps for a node that is down, a node with a fault, and an
// uncaptured pod.
func TestStatus(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	faulty := state(&report.Pods{States: map[report.Code]int{"uncaptured": 1}, Named: []report.NamedPod{{Namespace: "shop", Name: "web", State: "uncaptured"}}})
	faulty.Findings = report.Findings{{Code: report.EntryMissing, Severity: report.Problem, Subject: "entry", Reason: "no \x1b[2Jconflist"}}
	c.addNode("node-1", time.Minute, faulty)
	c.addNode("node-2", time.Hour, state(nil))
	c.addPod("node-1", "web", nil)
	c.addPod("node-1", "db", nil)
	out, _, status := c.run(t, "status")
	if status != 1 {
		t.Errorf("status %d", status)
	}
	expect(t, out, "nodes     1 faulty, 1 stale", "pods      1 uncaptured",
		"node-1", "faulty", "entry: no ?[2Jconflist", "node-2", "stale", "the agent stopped reporting",
		"next for node-1: kubectl -n capture-cni logs agent-node-1 -c installer", "next for node-2: kubectl get node node-2",
		"shop", "web", "node-1", "uncaptured", "next for shop/web: kubectl capture-cni explain shop/web")
	if strings.Contains(out, "\x1b") {
		t.Errorf("an escape sequence gets to the terminal: %q", out)
	}
	for _, format := range []string{"json", "yaml"} {
		out, _, status = c.run(t, "status", "-o", format)
		if status != 1 || !strings.Contains(out, "nextStep") {
			t.Errorf("%s: status %d:\n%s", format, status, out)
		}
	}
	var read fleet.Fleet
	out, _, _ = c.run(t, "status", "-o", "json")
	if err := json.Unmarshal([]byte(out), &read); err != nil || len(read.Nodes) != 2 || read.Nodes[1].State != fleet.Stale {
		t.Errorf("%+v, %v", read, err)
	}
}

// TestStatusWaits expects --wait to wait until all agents are updated and the fleet is good. The command
// prints its progress, and watches the objects instead of listing them again.
func TestStatusWaits(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	waiting := state(nil)
	waiting.Findings = report.Findings{{Code: report.EntryNotLoaded, Severity: report.Waiting, Subject: "runtime", Reason: "not loaded yet"}}
	c.addNode("node-1", 0, waiting)
	c.set.Generation = 2
	c.set.Status = appsv1.DaemonSetStatus{ObservedGeneration: 1, DesiredNumberScheduled: 1, UpdatedNumberScheduled: 1, NumberReady: 1}
	progress := &changing{changes: []func(){
		func() {
			c.nodes, c.leases, c.pods = nil, nil, nil
			c.addNode("node-1", 0, state(&report.Pods{}))
		},
		func() { c.set.Status.ObservedGeneration = 2 },
	}, cluster: c}
	f, err := waitUntilGood(t.Context(), c.client(t), fleet.DefaultNamespace, time.Minute, progress)
	if err != nil || !f.Good() || c.lists != 1 {
		t.Errorf("%+v, %v, after %d lists", f, err, c.lists)
	}
	expect(t, progress.String(), "s: waiting: agents: the controller has not read the newest specification; nodes: 1 waiting", "nodes: 1 ready")
	if strings.Contains(progress.String(), "1 updated") {
		t.Errorf("it says that it waits for a fleet that is good:\n%s", progress)
	}
	out, _, status := c.run(t, "status", "--wait")
	if status != 0 {
		t.Errorf("status %d", status)
	}
	expect(t, out, "nodes     1 ready", "agents    1 desired, 1 updated, 1 ready")
}

// changing receives the progress of a command, and changes the cluster after each line.
type changing struct {
	strings.Builder
	changes []func()
	cluster *cluster
}

func (c *changing) Write(line []byte) (int, error) {
	if len(c.changes) > 0 {
		c.cluster.change(c.changes[0])
		c.changes = c.changes[1:]
	}
	return c.Builder.Write(line)
}

// TestStatusTimesOut expects --wait to end at its timeout, with the last known state: something needs
// attention, a permission is missing, or nothing is known.
func TestStatusTimesOut(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.addNode("node-1", 0, state(&report.Pods{}))
	c.leases = nil
	// wait doubles the timeout until the command can determine a state, because the machine may be
	// busy.
	wait := func() (out, errors string, status int) {
		for timeout := time.Second; ; timeout *= 2 {
			out, errors, status = c.run(t, "status", "--wait", "--timeout", timeout.String())
			if timeout > 10*time.Second || !strings.Contains(errors, "the API server has not answered within") {
				return out, errors, status
			}
		}
	}
	out, _, status := wait()
	if status != 1 {
		t.Errorf("after the time was over: status %d", status)
	}
	expect(t, out, "nodes     1 unreported")
	c.denied = "leases"
	if _, errors, status := wait(); status != 2 || strings.Count(errors, "listing the Leases") != 2 {
		t.Errorf("the fleet is not known at the time-out: status %d, %s", status, errors)
	}
	if _, errors, status := c.run(t, "status", "--wait", "--timeout", "1ns"); status != 2 || !strings.Contains(errors, "the API server has not answered within 1ns") {
		t.Errorf("nothing is known at the time-out: status %d, %s", status, errors)
	}
	interrupted, interrupt := context.WithCancel(t.Context())
	interrupt()
	if f, err := waitUntilGood(interrupted, c.client(t), fleet.DefaultNamespace, time.Hour, io.Discard); f != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v, %v", f, err)
	}
}

// TestStatusNotKnown expects exit status 2 if all known nodes are good, but a permission is missing.
// Then --wait does not wait.
func TestStatusNotKnown(t *testing.T) {
	t.Parallel()
	for _, resource := range []string{"/api/v1/pods", "/api/v1/nodes"} {
		c := newCluster(t)
		c.addNode("node-1", 0, state(&report.Pods{}))
		c.denied = resource
		for _, args := range [][]string{{"status"}, {"status", "--wait"}, {"list"}} {
			out, _, status := c.run(t, args...)
			if status != 2 || !strings.Contains(out, "Not known: listing the ") || !strings.Contains(out, "capture-cni-operator") {
				t.Errorf("%q without %s: status %d\n%s", args, resource, status, out)
			}
		}
		c.addNode("node-2", time.Hour, state(nil))
		if _, _, status := c.run(t, "status"); status != 1 {
			t.Errorf("a fault without %s: status %d", resource, status)
		}
	}
}

// TestStatusOfManyNodes has 400 nodes, of which 120 are ready. The output fits a terminal of 24 lines
// and 80 columns.
func TestStatusOfManyNodes(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for n := range 400 {
		name := fmt.Sprintf("ip-10-0-%d-%d.eu-central-1.compute.internal", n/250, n%250)
		c.addNode(name, time.Duration(n)*time.Second, state(&report.Pods{States: map[report.Code]int{report.Captured: 20}}))
		agent := &c.pods[len(c.pods)-1]
		switch {
		case n < 120:
		case n < 200: // the agent waits for its image
			agent.Status.Conditions[0].Status = corev1.ConditionFalse
			agent.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "installer", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "Back-off"}}}}
		default:
			c.pods = c.pods[:len(c.pods)-1]
		}
	}
	out, _, status := c.run(t, "status")
	lines := 0
	for line := range strings.Lines(out) {
		lines += 1 + (utf8.RuneCountInString(line)-2)/80
	}
	if status != 1 || lines > 24 {
		t.Errorf("status %d, %d lines:\n%s", status, lines, out)
	}
	expect(t, out, "200 no agent, 120 ready, 80 faulty", "ip-10-0-0-120.eu-central-1.compute.internal and 79 more", "ImagePullBackOff", "ip-10-0-0-200.eu-central-1.compute.internal and 199 more", "next for")
}

// TestStatusFails expects exit status 2 if the fleet can't be read.
func TestStatusFails(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.denied = "leases"
	if _, errors, status := c.run(t, "status"); status != 2 || !strings.Contains(errors, "listing the Leases") {
		t.Errorf("status %d: %s", status, errors)
	}
	c.denied = ""
	out, _, status := c.run(t, "status")
	if status != 1 {
		t.Errorf("an empty cluster: status %d", status)
	}
	expect(t, out, "nodes     none", "Note: no node is selected")
	if _, errors, status := c.run(t, "status", "-o", "xml"); status != 2 || !strings.Contains(errors, `--output is "xml": expected`) {
		t.Errorf("status %d: %s", status, errors)
	}
}

// TestList expects the pods that each flag selects.
func TestList(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.addNode("node-1", 0, state(&report.Pods{
		States: map[report.Code]int{"uncaptured": 1, "outdated": 1, "exempt": 1},
		Named: []report.NamedPod{
			{Namespace: "shop", Name: "bare", State: "uncaptured"},
			{Namespace: "shop", Name: "old", State: "outdated"},
			{Namespace: "shop", Name: "passed", State: "exempt", Cause: "inject_false"},
		},
	}))
	for _, name := range []string{"bare", "old", "passed", "captured"} {
		c.addPod("node-1", name, nil)
	}
	c.addPod("node-1", "by-init", func(pod *corev1.Pod) { pod.Spec.InitContainers = []corev1.Container{{Name: "istio-init"}} })
	for args, want := range map[string]string{
		"":                      "bare passed old",
		"--uncaptured":          "bare",
		"--exempt":              "passed",
		"--outdated":            "old",
		"--istio-init":          "by-init",
		"--exempt --outdated":   "passed old",
		"--uncaptured -n shop":  "bare",
		"--uncaptured -n other": "",
	} {
		out, errors, status := c.run(t, append([]string{"list", "-o", "json"}, strings.Fields(args)...)...)
		var read struct{ Pods []fleet.Pod }
		if err := json.Unmarshal([]byte(out), &read); err != nil || status != 0 {
			t.Fatalf("%s: status %d, %v, %s", args, status, err, errors)
		}
		var names []string
		for _, pod := range read.Pods {
			names = append(names, pod.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: %s, want %s", args, got, want)
		}
	}
	out, _, _ := c.run(t, "list")
	expect(t, out, "NAMESPACE", "STATE", "CAUSE", "shop", "bare", "uncaptured", "passed", "exempt", "inject_false", "next for shop/bare")
	if out, _, _ = c.run(t, "list", "-n", "other"); !strings.Contains(out, "No pods found.") {
		t.Errorf("of an empty namespace:\n%s", out)
	}
}

// TestTable expects aligned columns, also if some words have colours.
func TestTable(t *testing.T) {
	t.Parallel()
	rows := table{header: []string{"NAME", "STATE", "NEXT"}}
	rows.add("a", "faulty", "x")
	rows.add("é-long", "ready", "y")
	var plain, coloured strings.Builder
	rows.write(&plain)
	if want := "NAME    STATE   NEXT\na       faulty  x\né-long  ready   y\n"; plain.String() != want {
		t.Errorf("%q, want %q", plain.String(), want)
	}
	rows.write(&screen{&coloured, true})
	stripped := strings.NewReplacer("\x1b[31m", "", "\x1b[32m", "", "\x1b[0m", "").Replace(coloured.String())
	if stripped != plain.String() || stripped == coloured.String() {
		t.Errorf("coloured: %q", coloured.String())
	}
}
