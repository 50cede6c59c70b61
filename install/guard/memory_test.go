// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capture-cni/capture-cni/config"
)

var left = baseline{Stamp: "capture-cni rules v1 ipv4 00", Backend: config.NFTables, Digest: "1:00", Unconfirmed: true}

// TestMemory keeps a baseline of each sandbox, until the sandbox has gone.
func TestMemory(t *testing.T) {
	t.Parallel()
	m := memory{filepath.Join(t.TempDir(), "guard")}
	if err := m.keep(nil); err != nil {
		t.Fatalf("before anything was saved: %v", err)
	}
	if got := m.load("web"); got != (baseline{}) {
		t.Fatalf("before anything was saved: %+v", got)
	}
	for _, id := range []string{"web", "db"} {
		if err := m.save(id, baseline{Stamp: "an older one"}); err != nil {
			t.Fatal(err)
		}
		if err := m.save(id, left); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(m.dir, "api"+unfinished), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := m.keep(map[string]bool{"web": true}); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(m.dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != "web" {
		t.Errorf("kept %v, %v", entries, err)
	}
	if diff := cmp.Diff(left, memory{m.dir}.load("web")); diff != "" {
		t.Error(diff)
	}
	if got := m.load("db"); got != (baseline{}) {
		t.Errorf("of a sandbox that has gone: %+v", got)
	}
}

// TestMemoryRefuses ids that are no names of files, files that are no baselines,
// and a directory that another user can write to.
func TestMemoryRefuses(t *testing.T) {
	t.Parallel()
	m := memory{filepath.Join(t.TempDir(), "guard")}
	for _, id := range []string{"", "..", "../web", "a/b", ".web", "web.part", strings.Repeat("a", 129), "a\x00"} {
		if err := m.save(id, left); err == nil || m.load(id) != (baseline{}) {
			t.Errorf("sandbox %q is saved: %v", id, err)
		}
	}
	if err := m.save("web", baseline{Stamp: strings.Repeat("x", maxBaseline)}); err == nil || !strings.Contains(err.Error(), "4096") {
		t.Errorf("a baseline that is too large: %v", err)
	}
	if err := m.save("web", left); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"torn": `{"stamp":"capture-cni`, "large": `{"stamp":"` + strings.Repeat("x", maxBaseline) + `"}`, "another": `{"stamp":1}`} {
		if err := os.WriteFile(filepath.Join(m.dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := m.load(name); got != (baseline{}) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if err := os.Chmod(m.dir, 0o757); err != nil {
		t.Fatal(err)
	}
	if got := m.load("web"); got != (baseline{}) {
		t.Errorf("from a directory that others write to: %+v", got)
	}
	if err := m.save("web", left); err == nil {
		t.Error("a directory that others write to is written to")
	}
	link := memory{filepath.Join(t.TempDir(), "link")}
	if err := os.Symlink(t.TempDir(), link.dir); err != nil {
		t.Fatal(err)
	}
	if err := link.save("web", left); err == nil {
		t.Error("a link is followed")
	}
}

// TestNoMemory works without a directory.
func TestNoMemory(t *testing.T) {
	t.Parallel()
	var m memory
	if err := m.save("web", left); err != nil || m.keep(nil) != nil || m.load("web") != (baseline{}) {
		t.Errorf("%v", err)
	}
}
