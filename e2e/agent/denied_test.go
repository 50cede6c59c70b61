// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
)

// Labels of a container and of a directory, as in a denial that users of RKE2 reported.
const (
	containerLabel = "system_u:system_r:container_t:s0:c254,c465"
	directoryLabel = "system_u:object_r:usr_t:s0"
)

// TestDeniedWrite has a directory that refuses what its mode allows, as a security module
// does, and an agent with a label: the agent's log and preflight say which label met which,
// and what to do. Without a label they blame no module.
func TestDeniedWrite(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	label := n.Dir + "/label"
	lab.Check(t, os.WriteFile(label, []byte(containerLabel+"\x00"), 0o600))
	lab.Check(t, unix.Lsetxattr(n.NetDir, "security.selinux", []byte(directoryLabel+"\x00"), 0))
	immutable(t, n.NetDir)

	unlabelled := n.Start(t, "--mode", "insert")
	unlabelled.WaitForLog(t, "operation not permitted")
	unlabelled.Stop(t)
	if strings.Contains(unlabelled.Log.String(), "SELinux gives") {
		t.Errorf("without a label: %s", unlabelled.Log)
	}
	labelled := []string{"unshare", "--mount", "sh", "-ec", "mount --bind " + label + " /proc/$$/attr/current; exec \"$@\"", "sh"}
	a := n.StartBehind(t, labelled, "--mode", "insert")
	for _, want := range []string{"operation not permitted: the mode of " + n.NetDir + " allows it", "preflight found a problem\" problem=\"" + n.NetDir + " can't be written to"} {
		a.WaitForLog(t, want)
	}
	a.Ready(t, http.StatusServiceUnavailable)
	for _, want := range []string{containerLabel, "and the directory " + directoryLabel, "ausearch -m AVC", "seLinuxOptions.type=spc_t"} {
		if got := strings.Count(a.Log.String(), want); got < 2 {
			t.Errorf("%d of two lines have %q: %s", got, want, a.Log)
		}
	}
}

// TestHealthyNode has an agent that finds no problem when it starts, so that each one it
// logs elsewhere deserves a look.
func TestHealthyNode(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	lab.Check(t, os.Chmod(filepath.Join(n.NetDir, machine.PrimaryName), 0o600))
	_, socket := n.ServeRuntime(t, true)
	a := n.Start(t, "--mode", "auto", "--cri-socket", socket)
	a.WaitForMetric(t, `capture_cni_preflight_problems{severity="serious"} 0`)
	a.WaitForMetric(t, `capture_cni_preflight_problems{severity="note"} 0`)
	a.Ready(t)
	if strings.Contains(a.Log.String(), "preflight") {
		t.Errorf("the log names a problem: %s", a.Log)
	}
}

// immutable has the kernel refuse every write in a directory until the test ends.
func immutable(t *testing.T, directory string) {
	t.Helper()
	if out, err := exec.Command("chattr", "+i", directory).CombinedOutput(); err != nil {
		t.Fatalf("chattr: %v: %s", err, out)
	}
	t.Cleanup(func() { lab.Check(t, exec.Command("chattr", "-i", directory).Run()) })
}
