// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
)

// hasEntry returns an error unless a runtime would call the plugin.
func (n *node) hasEntry() error {
	got, err := n.LoadedTypes()
	if err == nil && !strings.Contains(got, "capture-cni") {
		err = fmt.Errorf("a runtime would call %q", got)
	}
	return err
}

// startRival starts a process that replaces the primary's list, again and again after a
// pause, or only if it contains the entry. It returns a function that ends it.
func (n *node) startRival(t *testing.T, pause string, reacts bool) (stop func()) {
	t.Helper()
	source, list := filepath.Join(n.Dir, "original"), filepath.Join(n.NetDir, machine.PrimaryName)
	lab.Check(t, os.WriteFile(source, []byte(machine.Kindnet), 0o644))
	condition := "true"
	if reacts {
		condition = `grep -q capture-cni "$2"`
	}
	rival := exec.Command("sh", "-c", `while sleep "$3"; do `+condition+` && cp "$1" "$1.new" && mv "$1.new" "$2"; done`, "rival", source, list, pause)
	lab.Check(t, rival.Start())
	stop = func() { _ = rival.Process.Kill(); _ = rival.Wait() }
	t.Cleanup(stop)
	return stop
}

// TestRivalStops ends a rival while a back-off has only begun: the entry is back before the
// end of that. The bound is six times the pause after which a writer counts as stopped.
// install/node.TestWriterStops has writers with other pauses, and the longest back-off.
func TestRivalStops(t *testing.T) {
	t.Parallel()
	for name, rival := range map[string]struct {
		pause  string
		reacts bool
	}{"writes all the time": {"0.1", false}, "reacts": {"0.1", true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			a := n.StartReady(t, "--mode", "insert")
			stop := n.startRival(t, rival.pause, rival.reacts)
			a.WaitForLog(t, "back-off=16s")
			lab.Eventually(t, func() error {
				if n.hasEntry() == nil {
					return errors.New("the rival has not removed the entry yet")
				}
				return nil
			})
			stop()
			stopped := time.Now()
			lab.Eventually(t, n.hasEntry)
			if took := time.Since(stopped); took > 12*time.Second {
				t.Errorf("the entry is back after %s\n%s", took, a.Log)
			}
			a.Ready(t)
		})
	}
}

// TestDropInComesBack removes the drop-in, or its directory: the agent puts it back.
func TestDropInComesBack(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.StartReady(t, "--mode", "dropin")
	directory := n.NetDir + "/kindnet"
	for i, remove := range []func() error{
		func() error { return os.Remove(directory + "/capture-cni.conf") },
		func() error { return os.Rename(directory, n.Dir+"/gone") },
		func() error { return os.Remove(directory + "/capture-cni.conf") },
	} {
		lab.Check(t, remove())
		t.Logf("removal %d", i)
		lab.Eventually(t, func() error { return exists(directory + "/capture-cni.conf") })
	}
}

func exists(path string) error {
	_, err := os.Stat(path)
	return err
}
