// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/host"
)

// TestReaction compares how soon the agent restores what another program removes with a
// process that watches one directory and writes a file of the same size. Without its
// watches the agent would restore it after a second, or at the next resync after a minute.
func TestReaction(t *testing.T) {
	n := newNode(t)
	n.Start(t, "--mode", "dropin").Ready(t)
	entry := n.NetDir + "/kindnet/capture-cni.conf"
	for name, path := range map[string]string{"entry": entry, "program": n.BinDir + "/capture-cni"} {
		bare := bareReaction(t, path)
		const rounds = 5 // fewer than the agent takes for contention
		var took []time.Duration
		for range rounds {
			took = append(took, restored(t, path))
		}
		median, most := slices.Sorted(slices.Values(took))[rounds/2], 20*bare+250*time.Millisecond
		t.Logf("%s: restored after %s, a bare write after %s", name, median, bare)
		if median > most {
			t.Errorf("%s: the agent took %s, expected at most %s", name, median, most)
		}
	}
}

// restored removes a file, and returns the time until it exists again.
func restored(t *testing.T, path string) time.Duration {
	t.Helper()
	lab.Check(t, os.Remove(path))
	began := time.Now()
	for _, err := os.Stat(path); err != nil; _, err = os.Stat(path) {
		if time.Since(began) > lab.Patience {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	return time.Since(began)
}

// bareReaction returns the median time in which a goroutine that watches a directory
// restores a copy of a file.
func bareReaction(t *testing.T, path string) time.Duration {
	t.Helper()
	content, err := os.ReadFile(path)
	lab.Check(t, err)
	directory, err := host.OpenDir(t.TempDir(), nil)
	lab.Check(t, err)
	defer directory.Close()
	watcher, err := fsnotify.NewWatcher()
	lab.Check(t, err)
	defer watcher.Close()
	lab.Check(t, watcher.Add(directory.Path()))
	write := func() error { return directory.Replace("copy", bytes.NewReader(content), 0o600, nil) }
	lab.Check(t, write())
	go func() {
		for event := range watcher.Events {
			if event.Has(fsnotify.Remove) && filepath.Base(event.Name) == "copy" {
				_ = write()
			}
		}
	}()
	var took []time.Duration
	for range 5 {
		took = append(took, restored(t, directory.Path()+"/copy"))
	}
	return slices.Sorted(slices.Values(took))[2]
}
