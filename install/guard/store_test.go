// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/record"
)

var stored = baseline{Stamp: "capture-cni rules v1 ipv4 00", Backend: config.NFTables, Digest: "1:00", Unconfirmed: true}

// TestStore keeps a baseline of each sandbox until the sandbox has ended.
func TestStore(t *testing.T) {
	t.Parallel()
	s := store{filepath.Join(t.TempDir(), "guard")}
	if err := s.prune(nil); err != nil {
		t.Fatalf("before anything was saved: %v", err)
	}
	if got := s.load("web"); got != (baseline{}) {
		t.Fatalf("before anything was saved: %+v", got)
	}
	for _, id := range []string{"web", "db"} {
		if err := s.save(id, baseline{Stamp: "an older one"}); err != nil {
			t.Fatal(err)
		}
		if err := s.save(id, stored); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(s.dir, "api"+record.Unfinished), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.prune(map[string]cri.Sandbox{"web": {}}); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != "web" {
		t.Errorf("kept %v, %v", entries, err)
	}
	if diff := cmp.Diff(stored, store{s.dir}.load("web")); diff != "" {
		t.Error(diff)
	}
	if got := s.load("db"); got != (baseline{}) {
		t.Errorf("of a sandbox that has ended: %+v", got)
	}
}

// TestStoreRefuses ids that are no names of files, files that are no baselines,
// and a directory that another user can write to.
func TestStoreRefuses(t *testing.T) {
	t.Parallel()
	s := store{filepath.Join(t.TempDir(), "guard")}
	for _, id := range []string{"", "..", "../web", "a/b", ".web", "web.part", strings.Repeat("a", 129), "a\x00"} {
		if err := s.save(id, stored); err == nil || s.load(id) != (baseline{}) {
			t.Errorf("sandbox %q is saved: %v", id, err)
		}
	}
	if err := s.save("web", baseline{Stamp: strings.Repeat("x", maxBaseline)}); err == nil || !strings.Contains(err.Error(), "4096") {
		t.Errorf("a baseline that is too large: %v", err)
	}
	if err := s.save("web", stored); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"torn": `{"stamp":"capture-cni`, "empty": "", "large": `{"stamp":"` + strings.Repeat("x", maxBaseline) + `"}`, "another": `{"stamp":1}`} {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := s.load(name); got != (baseline{}) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if err := os.Chmod(s.dir, 0o757); err != nil {
		t.Fatal(err)
	}
	if got := s.load("web"); got != (baseline{}) {
		t.Errorf("from a directory that other users can write to: %+v", got)
	}
	if err := s.save("web", stored); err == nil {
		t.Error("saved to a directory that other users can write to")
	}
	link := store{filepath.Join(t.TempDir(), "link")}
	if err := os.Symlink(t.TempDir(), link.dir); err != nil {
		t.Fatal(err)
	}
	if err := link.save("web", stored); err == nil {
		t.Error("a link is followed")
	}
}

// TestStoreOnAFullDisk keeps the baseline that was stored before and no other file,
// logs the failure once, and stores the new one once there is space.
func TestStoreOnAFullDisk(t *testing.T) {
	t.Parallel()
	lab.RequireRoot(t)
	directory := t.TempDir()
	if err := unix.Mount("none", directory, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(directory, unix.MNT_DETACH) })
	var log strings.Builder
	g := New(Settings{BaselineDir: filepath.Join(directory, "guard"), Round: time.Minute}, nil, nil, slog.New(slog.NewTextHandler(&log, nil)), prometheus.NewRegistry())
	g.examiner.settings.Conf.ExcludeNamespaces = []string{"shop"} // so that an examination needs no namespace
	pods := []*watched{examined("a", report.Finding{}), examined("b", report.Finding{})}
	for _, w := range pods {
		g.watched[w.sandbox.ID] = w
		w.baseline = stored
		g.save(w)
	}
	filler := filepath.Join(directory, "filler")
	if err := os.WriteFile(filler, make([]byte, 128<<10), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("filling the disk: %v", err)
	}
	expect := func(when, stamp string, unsaved bool, logged string) {
		t.Helper()
		for _, w := range pods {
			w.baseline.Stamp = "a newer one"
			if w.unsaved {
				g.revisit(t.Context(), w) // finds nothing new
			} else {
				g.save(w)
			}
			if got := g.store.load(w.sandbox.ID); got.Stamp != stamp || w.unsaved != unsaved {
				t.Errorf("%s: %s has %+v, unsaved: %v", when, w.sandbox.ID, got, w.unsaved)
			}
		}
		about := strings.Count(log.String(), `msg="storing the baseline`) + strings.Count(log.String(), `msg="all baselines`)
		if about != 1 || !strings.Contains(log.String(), logged) {
			t.Errorf("%s: logged\n%s\nwant %q once", when, log.String(), logged)
		}
		log.Reset()
		if files, err := os.ReadDir(g.store.dir); err != nil || len(files) != len(pods) {
			t.Errorf("%s: files %v, %v", when, files, err)
		}
	}
	expect("full", stored.Stamp, true, "no space left")
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	expect("with space", "a newer one", false, "stored again")
}

// TestEndedPodsLeaveNoBaseline has pods start and end one after the other, in one life of the
// guard: only those that run are watched, and have a baseline.
func TestEndedPodsLeaveNoBaseline(t *testing.T) {
	t.Parallel()
	settings := Settings{Conf: config.Default(), BaselineDir: filepath.Join(t.TempDir(), "guard")}
	g := New(settings, nil, nil, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	running := map[string]cri.Sandbox{}
	for round := range 5 {
		for i := range 3 {
			id := fmt.Sprintf("pod-%d-%d", round, i)
			running[id] = cri.Sandbox{ID: id, NetNS: "/run/netns/" + id, Annotations: map[string]string{"sidecar.istio.io/status": "{}"}}
		}
		if round > 0 { // one of each round goes on
			delete(running, fmt.Sprintf("pod-%d-0", round-1))
			delete(running, fmt.Sprintf("pod-%d-1", round-1))
		}
		g.sync(running)
		for _, w := range g.watched {
			w.baseline = stored
			g.save(w)
		}
		g.sync(running)
		files, err := os.ReadDir(g.store.dir)
		if err != nil || len(files) != len(running) || len(g.watched) != len(running) {
			t.Errorf("round %d: %d pods run, %d are watched, %d have a baseline: %v", round, len(running), len(g.watched), len(files), err)
		}
	}
}

// TestStoreLimits reads a file up to its limit, and names what is in the way of a prune.
func TestStoreLimits(t *testing.T) {
	t.Parallel()
	s := store{t.TempDir()}
	for size, fits := range map[int]bool{9: true, 10: true, 11: false} {
		lab.Check(t, os.WriteFile(filepath.Join(s.dir, "file"), make([]byte, size), 0o600))
		content, at, err := readIn(s.dir, "file", 10)
		if (err == nil) != fits || fits && (len(content) != size || time.Since(at) > time.Hour) {
			t.Errorf("%d bytes of at most 10: %d, of %s, %v", size, len(content), at, err)
		}
		if !fits && err.Error() != "file is larger than 10 bytes" {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	full := `{"stamp":"` + strings.Repeat("x", maxBaseline-len(`{"stamp":"","backend":""}`))
	lab.Check(t, s.save("most", baseline{Stamp: strings.TrimPrefix(full, `{"stamp":"`)}))
	if err := s.save("more", baseline{Stamp: strings.TrimPrefix(full, `{"stamp":"`) + "x"}); err == nil {
		t.Error("a byte more than the limit is saved")
	}
	lab.Check(t, os.MkdirAll(filepath.Join(s.dir, "directory", "within"), 0o700))
	if err := s.prune(nil); err == nil || !strings.HasPrefix(err.Error(), "deleting the baseline of a sandbox that has ended: ") {
		t.Errorf("a directory in place of a baseline: %v", err)
	}
	lab.Check(t, os.Chmod(s.dir, 0o777))
	if err := s.prune(nil); err == nil || strings.Contains(err.Error(), "deleting") {
		t.Errorf("a directory of others is pruned: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	lab.Check(t, os.WriteFile(file, nil, 0o600))
	if err := (store{filepath.Join(file, "guard")}).save("web", stored); err == nil || !strings.Contains(err.Error(), "making the guard's directory: ") {
		t.Errorf("below a file: %v", err)
	}
}
