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

// rewrite has somebody write the primary's list at every interval, as its
// installer does, in one step.
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

// TestFight has a writer that never gives in: it is named and counted, and
// answered ever more slowly; then it stops, and our entry is back.
func TestFight(t *testing.T) {
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
		t.Errorf("%d rewrites were answered %d times, want 6 to 15", times, repairs)
	}
	check(t, metric(a, `capture_cni_entry_contended{writer="ptp"} 1`))
	a.says(t, "writer=ptp")
	eventually(t, func() (string, error) {
		got, err := n.loaded()
		if err == nil && !strings.Contains(got, "capture-cni") {
			err = fmt.Errorf("after the fight a runtime would call %q", got)
		}
		return got, err
	})
}

// TestOwnedIsNeverLost looks at what a runtime would call all through a fight:
// a list of our own is not the writer's to take.
func TestOwnedIsNeverLost(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t, "--mode", "owned").ready(t)
	done := make(chan error, 1)
	go func() {
		_, err := n.rewrite(50*time.Millisecond, 5*time.Second)
		done <- err
	}()
	for looks := 0; ; looks++ {
		select {
		case err := <-done:
			check(t, err)
			t.Logf("looked %d times", looks)
			return
		default:
			if got, err := n.loaded(); err != nil || !strings.HasSuffix(got, "capture-cni") {
				t.Fatalf("a runtime would call %q (%v)", got, err)
			}
		}
	}
}

// TestDropInComesBack puts back what somebody deletes, of the file or of the
// whole folder.
func TestDropInComesBack(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	a := n.start(t, "--mode", "dropin")
	a.ready(t)
	folder := n.netDir + "/kindnet"
	for i, remove := range []func() error{
		func() error { return os.Remove(folder + "/capture-cni.conf") },
		func() error { return os.Rename(folder, n.dir+"/gone") },
		func() error { return os.Remove(folder + "/capture-cni.conf") },
	} {
		check(t, remove())
		t.Logf("removal %d", i)
		eventually(t, func() (string, error) { return "", exists(folder + "/capture-cni.conf") })
	}
}

func exists(path string) error {
	_, err := os.Stat(path)
	return err
}
