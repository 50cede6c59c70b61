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
	"github.com/capture-cni/capture-cni/e2e/machine"
)

// addMissing calls the installed plugin with our entry, as a runtime does, for a
// pod that does not exist.
func (n *node) addMissing(t *testing.T) {
	t.Helper()
	entry, err := n.Command("render")
	lab.Check(t, err)
	command := exec.Command(filepath.Join(n.BinDir, "capture-cni"))
	command.Env = []string{
		"CNI_COMMAND=ADD", "CNI_CONTAINERID=sandbox", "CNI_NETNS=/run/netns/none", "CNI_IFNAME=eth0", "CNI_PATH=" + n.BinDir,
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
	a := n.StartReady(t, "--mode", "insert")
	n.addMissing(t)
	expectFailures(t, a, 1)
	a.Stop(t)
	for range 2 {
		n.addMissing(t)
	}
	a = n.Start(t, "--mode", "insert")
	expectFailures(t, a, 2)
	lab.Eventually(t, func() error { // the log comes after the metrics
		log := a.Log.String()
		if strings.Count(log, `msg="not captured, and not started" pod=shop/web`) != 2 || !strings.Contains(log, "not found") {
			return fmt.Errorf("log %s", log)
		}
		return nil
	})
	a.Stop(t)
	n.addMissing(t)
	if out, err := n.Command("uninstall"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if left, err := os.ReadDir(n.RunDir); err != nil || len(left) > 0 {
		t.Errorf("left %v (%v)", left, err)
	}
}

// TestReportsDisabled has an empty agentSocket: there is nothing in the run directory.
func TestReportsDisabled(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	netConf := filepath.Join(t.TempDir(), "netconf.json")
	lab.Check(t, os.WriteFile(netConf, []byte(`{"agentSocket": ""}`), 0o600))
	n.Start(t, "--mode", "insert", "--netconf", netConf).Ready(t)
	if left, err := os.ReadDir(n.RunDir); err == nil {
		t.Errorf("%s has %v", n.RunDir, left)
	}
}

func expectFailures(t *testing.T, a *machine.Agent, want int) {
	t.Helper()
	a.WaitForMetric(t, fmt.Sprintf(`capture_cni_adds_total{reason="lookup",result="failed"} %d`, want))
}
