// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
)

// TestBrokenPlugin gives the agent a plugin that does not run: the old one stays.
// Where that is damaged, too, the agent restores the last good one.
func TestBrokenPlugin(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.Start(t, "--mode", "insert").StopOnceReady(t)
	good := files(t, n.BinDir)["/capture-cni"]
	broken := filepath.Join(t.TempDir(), "broken")
	lab.Check(t, lab.WriteProgram(broken, []byte("#!/bin/sh\nexit 1\n")))
	for _, installed := range []string{good, "damaged"} {
		lab.Check(t, lab.WriteProgram(n.BinDir+"/capture-cni", []byte(installed)))
		b := n.Start(t, "--mode", "insert", "--plugin", broken)
		b.Ready(t, http.StatusServiceUnavailable)
		lab.Eventually(t, func() error {
			if files(t, n.BinDir)["/capture-cni"] != good {
				return &unexpected{"the plugin that works", "another one"}
			}
			return nil
		})
		b.WaitForLog(t, "does not run")
		n.expectWorking(t, lab.Cut{})
		b.Stop(t)
	}
}

func mount(t *testing.T, directory, options string) {
	t.Helper()
	lab.Check(t, os.MkdirAll(directory, 0o755))
	lab.Check(t, unix.Mount("none", directory, "tmpfs", 0, options))
	t.Cleanup(func() { _ = unix.Unmount(directory, unix.MNT_DETACH) })
}

// TestDiskFull has no space in the state directory: the agent uses the run
// directory for credentials, and a metric says so, as does the node's state until there is
// space again.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	mount(t, n.StateDir, "size=4k,nr_inodes=3")
	lab.Check(t, os.WriteFile(n.StateDir+"/filler", make([]byte, 4096), 0o600))
	a := n.Start(t, "--mode", "insert")
	a.WaitForMetric(t, "capture_cni_credentials_fallback 1")
	if got, err := n.LoadedTypes(); err != nil || !strings.Contains(got, "capture-cni") {
		t.Errorf("a runtime would call %q (%v)\n%s", got, err, a.Log)
	}
	if list := files(t, n.NetDir)["/"+machine.PrimaryName]; !strings.Contains(list, n.RunDir+"/kubeconfig") {
		t.Errorf("the entry does not contain the run directory: %s", list)
	}
	full := fmt.Sprintf("warning: the plugin's current credentials are only in %s, which a reboot empties, because the disk of %s is full or read-only: free space", n.RunDir, n.StateDir)
	a.WaitForReadyz(t, full)
	lab.Check(t, unix.Mount("none", n.StateDir, "tmpfs", unix.MS_REMOUNT, "size=100m,nr_inodes=0"))
	n.Write(t, "touched", "")
	lab.Check(t, os.WriteFile(n.BinDir+"/touched", nil, 0o600)) // the agent checks the whole node
	a.WaitForMetric(t, "capture_cni_credentials_fallback 0")
	if body := a.Ready(t); strings.Contains(body, "warning") {
		t.Errorf("with space again, /readyz says %s", body)
	}
}

// TestReadOnly has a read-only directory of lists: the agent reports it, and
// installs once it can write.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	mount(t, n.NetDir, "size=1m")
	n.Write(t, machine.PrimaryName, machine.Kindnet)
	lab.Check(t, unix.Mount("none", n.NetDir, "tmpfs", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	a := n.Start(t, "--mode", "insert")
	a.WaitForLog(t, "read-only file system")
	a.Ready(t, http.StatusServiceUnavailable)
	if out, err := n.Command("preflight", "--mode", "insert"); err == nil || !strings.Contains(out, "can't be written to") {
		t.Errorf("preflight: %v: %s", err, out)
	}
	lab.Check(t, unix.Mount("none", n.NetDir, "tmpfs", unix.MS_REMOUNT, ""))
	n.Write(t, "touched", "")
	a.Ready(t)
}

// startLimited starts the agent as the child of a command that limits it.
func (n *node) startLimited(t *testing.T, command ...string) *machine.Agent {
	t.Helper()
	return n.StartBehind(t, command, "--mode", "insert")
}

// TestNoWatches has no inotify instance left: the agent polls.
func TestNoWatches(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	a := n.startLimited(t, "unshare", "--user", "--map-root-user", "sh", "-c", `echo 0 > /proc/sys/user/max_inotify_instances && exec "$@"`, "sh")
	a.Ready(t)
	lab.Check(t, a.ExpectMetric("capture_cni_watch_polling 1"))
	n.Write(t, machine.PrimaryName, machine.Kindnet)
	lab.Eventually(t, n.hasEntry)
}

// TestNoPermission has an agent without the permission to write, as after a change
// of its security context: it reports that, and installs once it can write.
func TestNoPermission(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	lab.Check(t, os.Chmod(n.NetDir, 0o555))
	a := n.startLimited(t, "setpriv", "--bounding-set", "-dac_override,-dac_read_search")
	a.WaitForLog(t, "permission denied")
	a.Ready(t, http.StatusServiceUnavailable)
	n.expectWorking(t, lab.Cut{})
	lab.Check(t, os.Chmod(n.NetDir, 0o755))
	n.Write(t, "touched", "")
	a.Ready(t)
}

// TestFewFiles limits the number of open files: what is installed works, the agent keeps
// running and logs why it installs nothing, and an agent without the limit installs. An
// agent needs some 25 files, and Go itself can't start with fewer than the first limit.
func TestFewFiles(t *testing.T) {
	t.Parallel()
	failedCheck := regexp.MustCompile("checked the node.*too many open files")
	// The agent inherits no file that the caller of this test left open.
	lab.Check(t, unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC))
	for _, limit := range []string{"8", "10", "12", "15", "18", "20"} {
		n := newNode(t)
		a := n.startLimited(t, "prlimit", "--nofile="+limit)
		lab.Eventually(t, func() error { // the agent has ended a check of the node, and goes on
			if log := a.Log.String(); !failedCheck.MatchString(log) {
				return &unexpected{failedCheck.String(), log}
			}
			return nil
		})
		n.expectWorking(t, lab.Cut{})
		if a.HasExited(t) {
			t.Errorf("with %s files the agent exited:\n%s", limit, a.Log)
		}
		lab.Check(t, a.Process.Kill())
		_ = a.Wait()
		n.expectWorking(t, lab.Cut{})
		n.Start(t, "--mode", "insert").Ready(t)
	}
}

// TestPipesAreNotOpened has pipes where the agent expects files: it answers, names them,
// and installs once they are gone.
func TestPipesAreNotOpened(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pipes := []string{n.NetDir + "/00-first.conflist", n.BinDir + "/capture-cni", n.BinDir + "/capture-cni.dirs", n.StateDir + "/kubeconfig"}
	lab.Check(t, os.MkdirAll(n.StateDir, 0o755))
	for _, pipe := range pipes {
		lab.Check(t, unix.Mkfifo(pipe, 0o644))
	}
	a := n.Start(t, "--mode", "insert")
	a.WaitForReadyz(t, "00-first.conflist: not a regular file")
	lab.Check(t, os.Remove(pipes[0]))
	a.Ready(t)
	n.expectWorking(t, lab.Cut{})
}
