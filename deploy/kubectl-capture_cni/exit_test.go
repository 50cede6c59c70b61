// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/install/report"
)

// TestHelp expects --help to show a command's own flags, and to name the command that shows the flags of
// all commands.
func TestHelp(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for _, name := range []string{"status", "list", "check", "explain", "trace", "precheck", "test", "report", "version"} {
		out, _, status := c.run(t, name, "--help")
		if status != 0 || strings.Contains(out, "--as-group") || !strings.Contains(out, `Use "kubectl capture-cni --help" for the flags of all commands.`) {
			t.Errorf("%s: status %d\n%s", name, status, out)
		}
	}
	var out strings.Builder
	if status := execute(t.Context(), []string{"--help"}, newScreen(&out), newScreen(&out)); status != 0 || !strings.Contains(out.String(), "--as-group") {
		t.Errorf("of all commands: status %d\n%s", status, out.String())
	}
}

// TestEditedPodIsShown has a running pod that its user annotated as if it were in the mesh. status shows
// the pod, but exits with 0. Otherwise, any user could stop the script of a rollout.
func TestEditedPodIsShown(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.addNode("node-1", time.Minute, state(&report.Pods{
		States: map[report.Code]int{report.InjectedLater: 1}, Named: []report.NamedPod{{Namespace: "shop", Name: "web", State: report.InjectedLater}},
	}))
	c.addPod("node-1", "web", nil)
	out, _, status := c.run(t, "status")
	if status != 0 {
		t.Errorf("status %d:\n%s", status, out)
	}
	expect(t, out, "1 injected_later", "shop", "web", "injected_later", "delete the pod")
	if out, _, _ = c.run(t, "list", "--uncaptured"); !strings.Contains(out, "injected_later") {
		t.Errorf("list --uncaptured:\n%s", out)
	}
	if colour := colourOf(string(report.InjectedLater)); colour != colourOf(string(report.Changed)) {
		t.Errorf("colour %q", colour)
	}
}

// TestExitStatus executes each command without each permission that the command needs, without an agent,
// and for a pod that does not exist. If the command can't determine the state, it exits with 2, and
// names the role that grants the missing permission. It exits with 1 for a known fault.
func TestExitStatus(t *testing.T) {
	t.Parallel()
	const operator, exec, of = "ClusterRole capture-cni-operator has", "Role capture-cni-operator-exec has", "Role capture-cni-operator has"
	explain, trace := []string{"explain", "shop/web"}, []string{"trace", "shop/web", "--to=10.0.0.1:80"}
	service := []string{"trace", "-n", "shop", "web", "--to=svc/cart:http"}
	for _, tt := range []struct {
		args   []string
		denied string // part of the path for which the permission is missing
		want   string // expected on stdout or stderr
		status int
	}{
		{explain, "/shop/pods/web", operator + " the missing permission (get pods)", 2},
		{explain, "/exec", exec + " the missing permission (create pods/exec)", 2},
		{explain, "/leases", of + " the missing permission (get leases)", 2},
		{explain, "/daemonsets", of + " the missing permission (list daemonsets)", 2},
		{explain, "/capture-cni/pods", operator + " the missing permission (list pods)", 2},
		{explain, "/events", operator + " the missing permission (list events)", 2},
		{[]string{"explain", "shop/none"}, "", "gone", 1},
		{[]string{"explain", "shop/bare"}, "", "no agent runs on the node", 1},
		{[]string{"explain", "shop/down"}, "/exec", "the Node is not ready", 1},
		{[]string{"explain", "-n", "shop", "deploy/web"}, "/shop/pods", operator + " the missing permission (list pods)", 2},
		{trace, "/shop/pods/web", operator + " the missing permission (get pods)", 2},
		{trace, "/exec", exec + " the missing permission (create pods/exec)", 2},
		{trace, "/daemonsets", of + " the missing permission (list daemonsets)", 2},
		{trace, "/capture-cni/pods", operator + " the missing permission (list pods)", 2},
		{service, "/services/cart", operator + " the missing permission (get services)", 2},
		{[]string{"trace", "shop/none", "--to=10.0.0.1:80"}, "", "not found", 2},
		{[]string{"trace", "shop/bare", "--to=10.0.0.1:80"}, "", "no agent", 2},
		{[]string{"status"}, "/leases", of + " the missing permission (list leases)", 2},
		{[]string{"status"}, "/daemonsets", of + " the missing permission (list daemonsets)", 2},
		{[]string{"list"}, "/leases", of + " the missing permission (list leases)", 2},
		{[]string{"list"}, "/nodes", operator + " the missing permission (list nodes)", 2},
		{[]string{"list"}, "/api/v1/pods", operator + " the missing permission (list pods)", 2},
		{[]string{"version"}, "/leases", of + " the missing permission (list leases)", 2},
		{[]string{"test"}, "/leases", of + " the missing permission (list leases)", 2},
		{[]string{"report"}, "/leases", of + " the missing permission (list leases)", 2},
		{[]string{"report"}, "/exec", exec + " the missing permission (create pods/exec)", 2},
		{[]string{"precheck"}, "/nodes", operator + " the missing permission (list nodes)", 2},
	} {
		c := newCluster(t)
		c.version = "v1.36.0"
		c.addNode("node-1", time.Minute, state(&report.Pods{}))
		c.owned("web-5d4f-x", "ReplicaSet", "web-5d4f", time.Minute, false)
		c.addPod("node-1", "web", nil)
		c.addPod("node-9", "bare", nil)
		c.addNode("node-2", time.Minute, state(&report.Pods{}))
		c.nodes[1].Status.Conditions[0].Status = corev1.ConditionFalse
		c.addPod("node-2", "down", nil)
		c.denied = tt.denied
		args := tt.args
		if args[0] == "report" {
			args = append(args, "--file", t.TempDir()+"/report.tar.gz")
		}
		out, errors, status := c.run(t, args...)
		if status != tt.status || !strings.Contains(unwrapped(out+errors), tt.want) {
			t.Errorf("%q without %q: status %d, want %d with %q:\n%s%s", args, tt.denied, status, tt.status, tt.want, out, errors)
		}
	}
}
