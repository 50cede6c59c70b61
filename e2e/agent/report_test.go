// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// addMissing calls the installed plugin with our entry, as a runtime does, for a
// pod that does not exist.
func (n *node) addMissing(t *testing.T) {
	t.Helper()
	entry, err := n.command("render")
	lab.Check(t, err)
	command := exec.Command(filepath.Join(n.binDir, "capture-cni"))
	command.Env = []string{
		"CNI_COMMAND=ADD", "CNI_CONTAINERID=sandbox", "CNI_NETNS=/run/netns/none", "CNI_IFNAME=eth0", "CNI_PATH=" + n.binDir,
		"CNI_ARGS=K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web",
	}
	command.Stdin = strings.NewReader(`{"cniVersion": "1.0.0", "name": "kindnet", "lookupTimeout": "1s",` + strings.TrimPrefix(entry, "{"))
	if out, err := command.Output(); err == nil {
		t.Fatalf("ADD of a pod that does not exist succeeded: %s", out)
	}
}

// TestReports has the installed plugin report failed ADDs to the agent. Records
// from the time without an agent reach the next one.
func TestReports(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	a := n.start(t, "--mode", "insert")
	a.ready(t)
	n.addMissing(t)
	a.expectFailures(t, 1)
	a.stop(t)
	for range 2 {
		n.addMissing(t)
	}
	a = n.start(t, "--mode", "insert")
	a.expectFailures(t, 2)
	lab.Eventually(t, func() error { // the log comes after the metrics
		log := a.log.String()
		if strings.Count(log, `msg="not captured, and not started" pod=shop/web`) != 2 || !strings.Contains(log, "not found") {
			return fmt.Errorf("log %s", log)
		}
		return nil
	})
	a.stop(t)
	n.addMissing(t)
	if out, err := n.command("uninstall"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if left, err := os.ReadDir(n.runDir); err != nil || len(left) > 0 {
		t.Errorf("left %v (%v)", left, err)
	}
}

// TestReportsDisabled has an empty agentSocket: there is nothing in the run directory.
func TestReportsDisabled(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	netConf := filepath.Join(t.TempDir(), "netconf.json")
	lab.Check(t, os.WriteFile(netConf, []byte(`{"agentSocket": ""}`), 0o600))
	n.start(t, "--mode", "insert", "--netconf", netConf).ready(t)
	if left, err := os.ReadDir(n.runDir); err == nil {
		t.Errorf("%s has %v", n.runDir, left)
	}
}

func (a *agent) expectFailures(t *testing.T, want int) {
	t.Helper()
	line := fmt.Sprintf(`capture_cni_adds_total{reason="lookup",result="failed"} %d`, want)
	lab.Eventually(t, func() error {
		_, body := a.get("/metrics")
		if !strings.Contains(body, line+"\n") {
			return &unexpected{line, a.log.String()}
		}
		return nil
	})
}
