// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// watching is a watch at work.
type watching struct {
	changes <-chan string
	log     *lab.Log
}

// startWatch watches directories until the test ends.
func startWatch(t *testing.T, directories ...string) *watching {
	t.Helper()
	w := &watching{log: &lab.Log{}}
	changes, serve := watch(directories, func() { t.Error("the kernel refuses watches") }, slog.New(slog.NewTextHandler(w.log, nil)))
	w.changes = changes
	var wait sync.WaitGroup
	wait.Go(func() { serve(t.Context()) })
	t.Cleanup(wait.Wait)
	return w
}

// expect waits for changes of each of the directories, and no other.
func (w *watching) expect(t *testing.T, directories ...string) {
	t.Helper()
	missing := map[string]bool{}
	for _, directory := range directories {
		missing[directory] = true
	}
	for deadline := time.After(30 * time.Second); len(missing) > 0; {
		select {
		case directory := <-w.changes:
			delete(missing, directory)
		case <-deadline:
			t.Fatalf("no change of %v: %s", missing, w.log)
		}
	}
}

// quiet waits until there are no more changes, and returns how many there were.
func (w *watching) quiet(t *testing.T) (n int) {
	t.Helper()
	for {
		select {
		case <-w.changes:
			n++
		case <-time.After(50 * time.Millisecond):
			return n
		}
	}
}

func touch(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestReplacedDirectory replaces a watched directory in several ways, and looks for a
// change in the new one and in its subdirectory.
func TestReplacedDirectory(t *testing.T) {
	t.Parallel()
	for name, replace := range map[string]func(path string) error{
		"deleted and made anew": func(path string) error { return errors.Join(os.RemoveAll(path), os.MkdirAll(path+"/sub", 0o755)) },
		"moved away and made anew": func(path string) error {
			return errors.Join(os.Rename(path, path+".old"), os.MkdirAll(path+"/sub", 0o755))
		},
		"missing for a while": func(path string) error {
			err := os.RemoveAll(path)
			time.Sleep(2 * pollInterval) // the watch is renewed while there is none
			return errors.Join(err, os.MkdirAll(path+"/sub", 0o755))
		},
		"a link to another": func(path string) error {
			return errors.Join(os.MkdirAll(path+".2/sub", 0o755), os.Symlink(path+".2", path+".new"), os.Rename(path+".new", path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "net.d")
			made := path
			if strings.Contains(name, "link") {
				made = path + ".1"
				if err := os.Symlink(made, path); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Mkdir(made, 0o755); err != nil {
				t.Fatal(err)
			}
			w := startWatch(t, path)
			if err := replace(path); err != nil {
				t.Fatal(err)
			}
			for !strings.Contains(w.log.String(), "created or replaced") {
				w.expect(t, path)
			}
			w.quiet(t)
			if made != path {
				touch(t, made+"/00-old.conflist")
				if n := w.quiet(t); n > 0 {
					t.Error("the old directory is watched")
				}
			}
			touch(t, path+"/sub/20-b.conf") // before any change that would have its directory watched
			w.expect(t, path+"/sub")
			touch(t, path+"/10-a.conflist")
			w.expect(t, path)
		})
	}
}

// TestPolling has a directory that the kernel does not watch: each of them is checked at intervals.
func TestPolling(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	touch(t, directory+"/file")
	w, polling := &watching{log: &lab.Log{}}, 0
	changes, serve := watch([]string{directory, directory + "/file/sub"}, func() { polling++ }, slog.New(slog.NewTextHandler(w.log, nil)))
	w.changes = changes
	go serve(t.Context())
	w.expect(t, directory, directory+"/file/sub")
	w.expect(t, directory, directory+"/file/sub")
	if polling != 1 || !strings.Contains(w.log.String(), "watching directories failed; polling") {
		t.Errorf("polling was noted %d times: %s", polling, w.log)
	}
}

// TestFailingWatch has a directory that can't be watched any more, until it can: that is logged once.
func TestFailingWatch(t *testing.T) {
	t.Parallel()
	parent, other := t.TempDir()+"/parent", t.TempDir()+"/other"
	lab.Check(t, errors.Join(os.MkdirAll(parent+"/bin", 0o755), os.Mkdir(other, 0o755)))
	w := startWatch(t, parent+"/bin", other)
	checked := 0
	check := func() { // waits for the next check, which renews the watch of the other directory
		lab.Check(t, errors.Join(os.Rename(other, fmt.Sprint(other, checked)), os.Mkdir(other, 0o755)))
		for checked++; strings.Count(w.log.String(), "created or replaced\" directory="+other) < checked; {
			w.quiet(t)
		}
	}
	check()
	lab.Check(t, os.Rename(parent, parent+".old"))
	touch(t, parent)
	check()
	check()
	if n := strings.Count(w.log.String(), "watching the node's directories failed; retrying"); n != 1 {
		t.Errorf("logged %d times: %s", n, w.log)
	}
	lab.Check(t, os.Remove(parent))
	lab.Check(t, os.MkdirAll(parent+"/bin", 0o755))
	w.expect(t, parent+"/bin")
}

// TestOwnFiles tells nothing of the agent's temporary files and of changed modes: the change after them
// is the first.
func TestOwnFiles(t *testing.T) {
	t.Parallel()
	quiet, changed := t.TempDir(), t.TempDir()
	touch(t, quiet+"/10-a.conflist")
	w := startWatch(t, quiet, changed)
	touch(t, quiet+"/.capture-cni-tmp-A")
	lab.Check(t, os.Chmod(quiet+"/10-a.conflist", 0o600))
	lab.Check(t, os.Mkdir(changed+"/sub", 0o755))
	if first := <-w.changes; first != changed {
		t.Errorf("the first change is in %s", first)
	}
	touch(t, changed+"/sub/20-b.conf")
	w.expect(t, changed+"/sub")
}

// TestMissingDirectory watches a directory that is made later.
func TestMissingDirectory(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bin")
	w := startWatch(t, path)
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	w.expect(t, path)
}

// TestOverflow fills the kernel's queue of events, as changes by the thousand do: all
// directories have changed then, and a subdirectory whose event was lost is watched.
func TestOverflow(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	if err != nil {
		t.Fatal(err)
	}
	length, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil || length > 1<<20 {
		lab.Lacks(t, fmt.Sprintf("a queue of inotify that it can fill, not %d events (%v)", length, err))
	}
	busy, calm := t.TempDir(), t.TempDir()
	w := startWatch(t, busy, calm) // nothing takes its changes yet
	for i := range length {        // each is two events; the watch takes some before it waits
		name := fmt.Sprint(busy, "/", i%2)
		if os.Remove(name) == nil {
			continue
		}
		touch(t, name)
	}
	for i := range length {
		touch(t, fmt.Sprint(busy, "/", i%2))
	}
	if err := os.Mkdir(calm+"/sub", 0o755); err != nil {
		t.Fatal(err)
	}
	w.expect(t, busy, calm)
	w.quiet(t)
	if !strings.Contains(w.log.String(), "overflow") {
		t.Errorf("no overflow: %s", w.log)
	}
	touch(t, calm+"/sub/20-b.conf")
	w.expect(t, calm+"/sub")
}
