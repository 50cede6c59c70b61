// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/deploy/fleet"
	"github.com/capture-cni/capture-cni/install/nodestate"
	"github.com/capture-cni/capture-cni/install/terms"
)

// expect wants texts in an output, in their order.
func expect(t *testing.T, output string, want ...string) {
	t.Helper()
	rest := output
	for _, text := range want {
		_, after, found := strings.Cut(rest, text)
		if !found {
			t.Errorf("%q is missing, or not in its place, in:\n%s", text, output)
			return
		}
		rest = after
	}
}

func TestStatusOfAGoodFleet(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.addNode("node-1", time.Minute, state(&nodestate.Pods{States: map[terms.State]int{"captured": 2}}))
	out, _, status := c.run(t, "status")
	if status != 0 || strings.Contains(out, "NODE") {
		t.Errorf("status %d:\n%s", status, out)
	}
	expect(t, out, "nodes   1 ready", "agents  1 v0.2.0", "pods    2 captured")
	out, _, _ = c.run(t, "status", "-o", "wide")
	expect(t, out, "NODE", "VERSION", "node-1", "ready", "v0.2.0", "dropin", "agent-node-1")
}

// TestStatus shows what needs attention, with the next steps: a node that has died, one
// with a fault, and a pod without capture.
func TestStatus(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	faulty := state(&nodestate.Pods{States: map[terms.State]int{"uncaptured": 1}, Named: []nodestate.Pod{{Namespace: "shop", Name: "web", State: "uncaptured"}}})
	faulty.Findings = []nodestate.Finding{{Part: "entry", Reason: "no \x1b[2Jconflist"}}
	c.addNode("node-1", time.Minute, faulty)
	c.addNode("node-2", time.Hour, state(nil))
	c.addPod("node-1", "web", nil)
	c.addPod("node-1", "db", nil)
	out, _, status := c.run(t, "status")
	if status != 1 {
		t.Errorf("status %d", status)
	}
	expect(t, out, "nodes   1 faulty, 1 stale", "pods    1 uncaptured",
		"node-1", "faulty", "entry: no ?[2Jconflist", "node-2", "stale", "the agent has not reported for 1h0m0s",
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

// TestStatusWaits until the fleet is good, and tells what it waits for.
func TestStatusWaits(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	waiting := state(nil)
	waiting.Findings = []nodestate.Finding{{Part: "runtime", Reason: "not loaded yet", Waiting: true}}
	c.addNode("node-1", 0, waiting)
	c.change = func() {
		c.leases, c.pods = nil, nil
		c.addNode("node-1", 0, state(&nodestate.Pods{}))
	}
	out, progress, status := c.run(t, "status", "--wait", "--timeout", "1m")
	if status != 0 {
		t.Errorf("status %d:\n%s", status, out)
	}
	expect(t, progress, "waiting: nodes: 1 waiting")
	expect(t, out, "nodes   1 ready")
	c.mu.Lock()
	c.leases = nil
	c.mu.Unlock()
	if out, _, status = c.run(t, "status", "--wait", "--timeout", "10ms"); status != 1 {
		t.Errorf("after the time was over: status %d", status)
	}
	expect(t, out, "nodes   1 unreported")
	c.denied = "leases"
	if _, errors, status := c.run(t, "status", "--wait", "--timeout", "1ns"); status != 2 || strings.Count(errors, "listing the Leases") != 2 {
		t.Errorf("the fleet is not known at the time-out: status %d, %s", status, errors)
	}
	interrupted, interrupt := context.WithCancel(t.Context())
	read := func(context.Context) (*fleet.Fleet, error) { interrupt(); return &fleet.Fleet{}, nil }
	if f, err := waitUntilGood(interrupted, read, time.Hour, io.Discard); f != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v, %v", f, err)
	}
}

// TestStatusTimesOut ends at the time-out, however often it looks.
func TestStatusTimesOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reads, began := 0, time.Now()
		read := func(context.Context) (*fleet.Fleet, error) { reads++; return &fleet.Fleet{}, nil }
		const timeout = 3*waitInterval + time.Second
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if f, err := waitUntilGood(ctx, read, timeout, io.Discard); f == nil || err != nil || reads != 4 || time.Since(began) != timeout {
			t.Errorf("%v, %v after %d looks and %s", f, err, reads, time.Since(began))
		}
	})
}

// TestStatusFails with status 2 where the fleet can't be read.
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
	expect(t, out, "nodes   none", "Note: no agent and no Lease of one is in namespace capture-cni")
	if _, errors, status := c.run(t, "status", "-o", "xml"); status != 2 || !strings.Contains(errors, `--output is "xml": expected`) {
		t.Errorf("status %d: %s", status, errors)
	}
}

// TestList lists what each flag selects.
func TestList(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.addNode("node-1", 0, state(&nodestate.Pods{
		States: map[terms.State]int{"uncaptured": 1, "outdated": 1, "exempt": 1},
		Named: []nodestate.Pod{
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

// TestTable aligns columns whatever is coloured.
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
