// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
)

// rewrite replaces the primary's list, as its installer does.
func (n *node) rewrite(list string) error {
	temp := filepath.Join(n.Dir, "rewritten")
	return errors.Join(os.WriteFile(temp, []byte(list), 0o644), os.Rename(temp, filepath.Join(n.NetDir, machine.PrimaryName)))
}

// hasEntry returns an error unless a runtime would call the plugin.
func (n *node) hasEntry() error {
	got, err := n.LoadedTypes()
	if err == nil && !strings.Contains(got, "capture-cni") {
		err = fmt.Errorf("a runtime would call %q", got)
	}
	return err
}

// TestContention has a writer that removes our entry each time that it sees it: the agent
// says which list loses it, and that the program is unknown, and doubles its back-off. When
// the writer stops, the agent puts the entry back.
func TestContention(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	a := n.StartReady(t, "--mode", "insert")
	says := func(text string) bool { return strings.Contains(a.Log.String(), text) }
	rewrites := 0
	for _, next := range []string{"back-off=1s", "back-off=2s", "back-off=4s"} {
		for ; !says(next); rewrites++ {
			lab.Check(t, n.rewrite(machine.Kindnet))
			lab.Eventually(t, n.hasEntry)
		}
	}
	lab.Check(t, a.ExpectMetric(`capture_cni_entry_contended{writer="unknown"} 1`))
	const prompt = 5 // repairs before the first back-off; each later one has the next
	a.WaitForMetric(t, fmt.Sprintf("capture_cni_entry_repairs_total %d", prompt+strings.Count(a.Log.String(), "back-off=")))
	if rewrites > 2*(prompt+3) { // those after the agent's own start are no repairs
		t.Errorf("%d rewrites until the third back-off", rewrites)
	}
	lab.Check(t, n.rewrite(machine.Kindnet))
	const problem = "an unknown program keeps removing the entry (mode insert, %s, network kindnet): find the program that writes there, or use another mode"
	want := fmt.Sprintf(problem, filepath.Join(n.NetDir, machine.PrimaryName))
	if body := a.Ready(t, http.StatusServiceUnavailable); !strings.Contains(body, "entry: "+want) {
		t.Errorf("/readyz says %s", body)
	}
	if says("ptp") || says("cilium") {
		t.Errorf("the agent guesses: %s", a.Log)
	}
	lab.Eventually(t, n.hasEntry)
	a.WaitForReadyz(t, "warning: "+want)
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

// TestOwnedIsNeverLost replaces the primary's list by another one, as often as the agent
// embeds it at once: in mode owned, a runtime would call our plugin at every moment.
func TestOwnedIsNeverLost(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.Start(t, "--mode", "owned").Ready(t)
	ctx, stop := context.WithCancel(t.Context())
	checked := make(chan error, 1)
	go func() {
		var err error
		for err == nil && ctx.Err() == nil {
			err = n.hasEntry()
		}
		checked <- err
	}()
	for i := range 5 {
		last := []string{"bandwidth", "portmap"}[i%2]
		lab.Check(t, n.rewrite(strings.Replace(machine.Kindnet, "portmap", last, 1)))
		n.waitForTypes(t, "ptp "+last+" capture-cni")
	}
	stop()
	lab.Check(t, <-checked)
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
