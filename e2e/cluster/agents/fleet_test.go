// SPDX-License-Identifier: Apache-2.0

package agents

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
)

// plugin is the built plugin of kubectl.
type plugin string

func buildPlugin(t *testing.T) plugin {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubectl-capture_cni")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, "github.com/capture-cni/capture-cni/deploy/kubectl-capture_cni")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the plugin of kubectl: %v\n%s", err, out)
	}
	return plugin(path)
}

// run returns the output and the exit status of a command.
func (p plugin) run(t *testing.T, args ...string) (out string, status int) {
	t.Helper()
	command := exec.CommandContext(t.Context(), string(p), append(args, "--kubeconfig", c.Kubeconfig())...)
	output, err := command.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(output), command.ProcessState.ExitCode()
}

// expect runs a command until it has an exit status, and its output these texts.
func (p plugin) expect(t *testing.T, command string, status int, want ...string) {
	t.Helper()
	suite.Eventually(t, func() error {
		out, got := p.run(t, strings.Fields(command)...)
		for _, text := range want {
			if got != status || !strings.Contains(out, text) {
				return fmt.Errorf("%s: status %d, want %d and %q:\n%s", command, got, status, text, out)
			}
		}
		return nil
	})
}

// TestFleet asks kubectl capture-cni about a good fleet, about pods of every kind, about
// nodes without an agent, and without permissions.
func TestFleet(t *testing.T) {
	c.InstallChart(t)
	p := buildPlugin(t)
	n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
	node := c.Nodes[0]
	web, other, bad := suite.Server("web", node.Name), suite.Unmeshed(suite.Server("other", node.Name)), suite.Server("bad", node.Name)
	n.Run(t, web, other)
	p.expect(t, "status --wait", 0, fmt.Sprintf("%d ready", len(c.Nodes)), "captured")
	p.expect(t, "explain "+n.Name+"/web", 0, "web on node "+node.Name+": captured", "container guard", "kernel       backend nftables", "last ADD")
	p.expect(t, "explain "+n.Name+"/other", 0, "not in the mesh", "Next")
	p.expect(t, "explain "+n.Name+"/none", 1, "no such pod exists")
	bad.Annotations["traffic.sidecar.istio.io/excludeInboundPorts"] = "http"
	n.Create(t, bad)
	p.expect(t, "explain "+n.Name+"/bad", 1, "not started", "its ADD fails", `"http"`, "correct the annotations")
	p.expect(t, "list --uncaptured --namespace "+n.Name, 0, "bad", "not started") // after a minute
	n.Delete(t, bad)
	p.expect(t, "status --as system:serviceaccount:default:default", 2, "forbidden", "capture-cni-operator")
	removeAgents(t)
	p.expect(t, "status", 1, "no agent", node.Name)
}
