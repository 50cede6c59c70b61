// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// rewrite replaces the primary's list, as its installer does.
func (n *node) rewrite() error {
	temp := filepath.Join(n.dir, "rewritten")
	return errors.Join(os.WriteFile(temp, []byte(kindnet), 0o644), os.Rename(temp, filepath.Join(n.netDir, primaryName)))
}

// hasEntry returns an error unless a runtime would call the plugin.
func (n *node) hasEntry() error {
	got, err := n.loadedTypes()
	if err == nil && !strings.Contains(got, "capture-cni") {
		err = fmt.Errorf("a runtime would call %q", got)
	}
	return err
}

// TestContention has a writer that removes our entry each time that it sees it: the agent
// names it in a metric, and doubles its back-off. When the writer stops, the agent puts
// the entry back.
func TestContention(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	a := n.start(t, "--mode", "insert")
	a.ready(t)
	repair := func() time.Duration {
		began := time.Now()
		check(t, n.rewrite())
		eventually(t, func() (string, error) { return "", n.hasEntry() })
		return time.Since(began)
	}
	says := func(text string) bool { return strings.Contains(a.log.String(), text) }
	began := time.Now()
	rewrites, slowest := 0, time.Duration(0)
	for ; !says("back-off=1s"); rewrites++ {
		slowest = max(slowest, repair())
	}
	for _, next := range []string{"back-off=2s", "back-off=4s"} {
		if !says(next) {
			repair()
		}
		a.waitForLog(t, next)
	}
	check(t, expectMetric(a, `capture_cni_entry_contended{writer="ptp"} 1`))
	const prompt = 5 // repairs before the first back-off; each later one has the next
	eventually(t, func() (string, error) {
		return "", expectMetric(a, fmt.Sprintf("capture_cni_entry_repairs_total %d", prompt+strings.Count(a.log.String(), "back-off=")))
	})
	a.waitForLog(t, "writer=ptp")
	if rewrites > 2*6 { // those after the agent's own start are no repairs
		t.Errorf("%d rewrites before the agent waits", rewrites)
	}
	check(t, n.rewrite())
	if body := a.ready(t, http.StatusServiceUnavailable); !strings.Contains(body, "entry: ptp keeps removing the entry: configure it to keep the entry") {
		t.Errorf("/readyz says %s", body)
	}
	eventually(t, func() (string, error) { return "", n.hasEntry() })
	const backOffs = (1 + 2 + 4) * time.Second
	if took := time.Since(began); took < backOffs || took > backOffs+2*time.Second+100*slowest {
		t.Errorf("back-offs of %s took %s, and the slowest repair without one %s", backOffs, took, slowest)
	}
}

// TestOwnedIsNeverLost rewrites the primary's list all the time: in mode owned, a
// runtime would call our plugin at every moment.
func TestOwnedIsNeverLost(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t, "--mode", "owned").ready(t)
	done := make(chan error, 1)
	go func() {
		var err error
		for start := time.Now(); err == nil && time.Since(start) < 5*time.Second; time.Sleep(50 * time.Millisecond) {
			err = n.rewrite()
		}
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
