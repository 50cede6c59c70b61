// SPDX-License-Identifier: Apache-2.0

package agents

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/capture-cni/capture-cni/deploy/capturetest"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

const testLabels = "app.kubernetes.io/name=capture-cni,app.kubernetes.io/component=test"

// TestKubectlTest runs kubectl capture-cni test between nodes of each runtime, on a node whose
// plugin fails, and on one without the plugin. It leaves nothing, also when it is interrupted.
func TestKubectlTest(t *testing.T) {
	c.InstallChart(t)
	p := c.BuildPlugin(t)
	first, debian, crio := c.Nodes[0], c.Nodes[1], c.Nodes[2]
	expectAllPass(t, p, 3*2*2*4) // one of each runtime
	expectAllPass(t, p, 2*2*4, "--nodes", crio.Name+","+debian.Name, "--mode", "redirect")
	interrupt(t, p)
	n := c.NewNamespace(t, suite.Restricted)
	expectAllPass(t, p, 2*4, "--namespace", n.Name, "--mode", "redirect", "--nodes", first.Name)
	p.Expect(t, "test --mode tproxy --namespace "+n.Name, 2, "skipped", "violates PodSecurity", "nothing could be tested")
	if left := n.Kubectl(t, "", "get", "pods,services", "--selector", testLabels, "-o", "name"); left != "" {
		t.Errorf("namespace %s still has %s", n.Name, left)
	}

	image := kubectl(t, "get", "daemonset/capture-cni-node", "-o", "jsonpath={.spec.template.spec.containers[0].image}")
	removeAgents(t)
	entry := first.Path("/etc/cni/net.d/podnet/capture-cni.conf")
	onFirst := []string{"--mode", "redirect", "--nodes", first.Name, "--image", image}
	edit(t, first, entry, `"type"`, `"ipv6": "sometimes", "type"`)
	expectFailure(t, p, "did not start within 20s", `"ipv6" is "sometimes"`, append(onFirst, "--timeout", "20s")...)
	lab.Check(t, os.Remove(entry))
	lab.Check(t, suite.TriggerReload(first))
	suite.WaitForLastPlugin(t, first, "portmap")
	expectFailure(t, p, "bypassed the client's proxy", "node "+first.Name+" (no agent)", onFirst...)
}

// expectAllPass expects that all checks of a test pass, and that it leaves nothing.
func expectAllPass(t *testing.T, p suite.Plugin, checks int, flags ...string) {
	t.Helper()
	out, status := p.Output(t, append([]string{"test", "-o", "json"}, flags...)...)
	var report struct {
		Results []struct {
			Verdict capturetest.Verdict `json:"result"`
		}
	}
	lab.Check(t, json.Unmarshal([]byte(out), &report))
	passed := 0
	for _, result := range report.Results {
		if result.Verdict == capturetest.Passed {
			passed++
		}
	}
	if status != 0 || passed != checks || len(report.Results) != checks {
		t.Errorf("test %q: status %d, %d of %d checks passed:\n%s", flags, status, passed, checks, out)
	}
	expectNoTests(t)
}

// expectFailure expects a test to fail with a cause, and to leave a report and nothing else.
func expectFailure(t *testing.T, p suite.Plugin, cause, detail string, flags ...string) {
	t.Helper()
	archive := filepath.Join(t.TempDir(), "report.tar.gz")
	out, status := p.Output(t, append([]string{"test", "--report", archive}, flags...)...)
	for _, want := range []string{"failed", cause, detail, "next for REDIRECT", "Report: " + archive} {
		if status != 1 || !suite.Has(out, want) {
			t.Errorf("test %q: status %d, want 1 and %q:\n%s", flags, status, want, out)
		}
	}
	if info, err := os.Stat(archive); err != nil || info.Size() == 0 {
		t.Errorf("the report: %v", err)
	}
	expectNoTests(t)
}

// interrupt interrupts a test while its pods start.
func interrupt(t *testing.T, p suite.Plugin) {
	t.Helper()
	var output strings.Builder
	command := p.Command(t, "test")
	command.Stdout, command.Stderr = &output, &output
	lab.Check(t, command.Start())
	lab.Eventually(t, func() error {
		if pods := c.MustKubectl(t, "get", "pods", "--all-namespaces", "--selector", testLabels, "-o", "name"); pods == "" {
			return fmt.Errorf("no pod of the test is there")
		}
		return nil
	})
	lab.Check(t, command.Process.Signal(syscall.SIGINT))
	_ = command.Wait()
	if status := command.ProcessState.ExitCode(); status != 2 || !strings.Contains(output.String(), "canceled") {
		t.Errorf("interrupted: status %d, want 2:\n%s", status, output.String())
	}
	expectNoTests(t)
}

// expectNoTests expects nothing of any test.
func expectNoTests(t *testing.T) {
	t.Helper()
	if left := c.MustKubectl(t, "get", "namespaces,pods,services", "--all-namespaces", "--selector", testLabels, "-o", "name"); left != "" {
		t.Errorf("still there: %s", left)
	}
}
