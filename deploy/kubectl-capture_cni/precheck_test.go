// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

// TestPrecheck expects the findings, and the commands that install the chart.
func TestPrecheck(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.version = "v1.36.2"
	c.addNode("node-1", 0, state(nil))
	out, _, status := c.run(t, "precheck")
	if status != 0 {
		t.Errorf("status %d:\n%s", status, out)
	}
	expect(t, out, "RESULT", "ok", "kubernetes", "version v1.36.2", "nodes", "1, with containerd://2.1.4", "note", "istiod",
		"next for istiod: install istiod", "Run:", "kubectl create namespace capture-cni", "helm -n capture-cni install capture-cni deploy/chart --set platform=plain")
	c.denied = "/daemonsets"
	if out, _, status = c.run(t, "precheck"); status != 2 || strings.Contains(out, "helm") {
		t.Errorf("without the permission for DaemonSets: status %d\n%s", status, out)
	}
	expect(t, out, "unknown  permissions", "daemonsets of all namespaces", "Run this again with permission")
	c.denied, c.version = "", "v1.20.1"
	if out, _, status = c.run(t, "precheck", "--agent-namespace", "mesh"); status != 1 {
		t.Errorf("an old Kubernetes: status %d", status)
	}
	if strings.Contains(out, "helm") {
		t.Errorf("it prints a command that is not safe:\n%s", out)
	}
	expect(t, out, "problem", "Solve the problems, and run this again.")
}
