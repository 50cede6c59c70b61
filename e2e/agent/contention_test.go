// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// rewrite replaces the primary's list at every interval, as its installer does.
func (n *node) rewrite(interval, total time.Duration) (times int, err error) {
	for start := time.Now(); err == nil && time.Since(start) < total; time.Sleep(interval) {
		temp := filepath.Join(n.dir, "rewritten")
		if err = os.WriteFile(temp, []byte(kindnet), 0o644); err == nil {
			err = os.Rename(temp, filepath.Join(n.netDir, primaryName))
		}
		times++
	}
	return times, err
}

// TestContention has a writer that keeps removing our entry: the agent names it in
// a metric, and backs off. When the writer stops, the agent puts the entry back.
func TestContention(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	a := n.start(t, "--mode", "insert")
	a.ready(t)
	times, err := n.rewrite(200*time.Millisecond, 60*time.Second)
	check(t, err)
	var repairs int
	_, body := a.get("/metrics")
	for line := range strings.Lines(body) {
		_, _ = fmt.Sscanf(line, "capture_cni_entry_repairs_total %d", &repairs)
	}
	t.Logf("%d rewrites, %d repairs", times, repairs)
	if repairs < 6 || repairs > 15 {
		t.Errorf("%d rewrites caused %d repairs, want 6 to 15", times, repairs)
	}
	check(t, expectMetric(a, `capture_cni_entry_contended{writer="ptp"} 1`))
	a.waitForLog(t, "writer=ptp")
	eventually(t, func() (string, error) {
		got, err := n.loadedTypes()
		if err == nil && !strings.Contains(got, "capture-cni") {
			err = fmt.Errorf("after the last rewrite a runtime would call %q", got)
		}
		return got, err
	})
}

// TestOwnedIsNeverLost rewrites the primary's list all the time: in mode owned, a
// runtime would call our plugin at every moment.
func TestOwnedIsNeverLost(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t, "--mode", "owned").ready(t)
	done := make(chan error, 1)
	go func() {
		_, err := n.rewrite(50*time.Millisecond, 5*time.Second)
		done <- err
	}()
	for checks := 0; ; checks++ {
		select {
		case err := <-done:
			check(t, err)
			t.Logf("checked %d times", checks)
			return
		default:
			if got, err := n.loadedTypes(); err != nil || !strings.HasSuffix(got, "capture-cni") {
				t.Fatalf("a runtime would call %q (%v)", got, err)
			}
		}
	}
}

// TestDropInComesBack removes the drop-in, or its directory: the agent puts it back.
func TestDropInComesBack(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	a := n.start(t, "--mode", "dropin")
	a.ready(t)
	directory := n.netDir + "/kindnet"
	for i, remove := range []func() error{
		func() error { return os.Remove(directory + "/capture-cni.conf") },
		func() error { return os.Rename(directory, n.dir+"/gone") },
		func() error { return os.Remove(directory + "/capture-cni.conf") },
	} {
		check(t, remove())
		t.Logf("removal %d", i)
		eventually(t, func() (string, error) { return "", exists(directory + "/capture-cni.conf") })
	}
}

func exists(path string) error {
	_, err := os.Stat(path)
	return err
}
