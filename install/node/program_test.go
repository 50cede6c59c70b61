// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
	"github.com/capture-cni/capture-cni/install/conflist"
)

// TestProgramIsTried replaces a program by a copy that runs, and by none that does not.
func TestProgramIsTried(t *testing.T) {
	t.Parallel()
	fault := errors.New("exec format error")
	for want, tried := range map[string]error{"new": nil, "old": fault} {
		wanted := DefaultSettings(machine.New(t, map[string]string{"/opt/cni/bin/capture-cni": "old", "/copy/capture-cni": "new", "/var/lib/capture-cni/owner": "mesh"}))
		bin, state := machine.OpenDir(t, wanted.At("/opt/cni/bin")), machine.OpenDir(t, wanted.At("/var/lib/capture-cni"))
		p := Program{conflist.PluginType, wanted.At("/copy/capture-cni"), func(_ context.Context, path string) error {
			if filepath.Base(path) == conflist.PluginType {
				return nil // what is installed runs
			}
			return tried
		}}
		changed, err := p.install(t.Context(), bin, state)
		content, readErr := os.ReadFile(bin.Path() + "/" + conflist.PluginType)
		if string(content) != want || readErr != nil || changed != (tried == nil) || !errors.Is(err, tried) {
			t.Errorf("a copy that returns %v: %q is installed (%v), changed %v, %v", tried, content, readErr, changed, err)
		}
	}
}

// TestLastGood has the copy, what is installed and the last copy that ran each run, fail or be
// missing: what runs takes the place of what does not, and of nothing else.
func TestLastGood(t *testing.T) {
	t.Parallel()
	const runs = "#!runs "
	for _, test := range []struct{ copied, installed, good, want string }{
		{runs + "new", runs + "old", runs + "good", runs + "new"},
		{runs + "new", "broken", runs + "good", runs + "new"},
		{runs + "new", "", "", runs + "new"},
		{"broken", runs + "old", runs + "good", runs + "old"},
		{"broken", runs + "old", "", runs + "old"},
		{"broken", "other", runs + "good", runs + "good"},
		{"broken", "", runs + "good", runs + "good"},
		{"broken", "other", "broken, too", "other"},
		{"broken", "other", "", "other"},
		{"broken", "", "", ""},
	} {
		files := map[string]string{"/opt/cni/bin/other": "", "/copy/capture-cni": test.copied, "/var/lib/capture-cni/owner": "mesh"}
		for path, content := range map[string]string{
			"/opt/cni/bin/capture-cni": test.installed, "/var/lib/capture-cni/" + lastGood(conflist.PluginType): test.good,
		} {
			if content != "" {
				files[path] = content
			}
		}
		wanted := DefaultSettings(machine.New(t, files))
		bin, state := machine.OpenDir(t, wanted.At("/opt/cni/bin")), machine.OpenDir(t, wanted.At("/var/lib/capture-cni"))
		p := Program{conflist.PluginType, wanted.At("/copy/capture-cni"), func(_ context.Context, path string) error {
			content, err := os.ReadFile(path)
			if err == nil && !strings.HasPrefix(string(content), runs) {
				err = errors.New("exec format error")
			}
			return err
		}}
		for range 2 {
			changed, err := p.install(t.Context(), bin, state)
			content, _ := os.ReadFile(bin.Path() + "/" + conflist.PluginType)
			if fine := strings.HasPrefix(test.copied, runs); string(content) != test.want || (err == nil) != fine || changed && !fine {
				t.Errorf("%+v: %q is installed, changed %t, %v", test, content, changed, err)
			}
		}
		if names, err := bin.Names(); err != nil || len(names) > 2 {
			t.Errorf("%+v: left %q, %v", test, names, err)
		}
	}
}

// TestDamagedProgram replaces a program that differs from the copy at its last byte alone, is
// longer by one, or can't be executed.
func TestDamagedProgram(t *testing.T) {
	t.Parallel()
	good := strings.Repeat("x", 200<<10)
	for _, damaged := range []struct {
		content string
		mode    os.FileMode
	}{{good[1:] + "y", 0o755}, {good + "y", 0o755}, {good, 0o644}, {good, 0o755}, {good, 0o100}, {good, 0o001}} {
		installed, damage := damaged.content, damaged.content != good || damaged.mode == 0o644
		wanted := DefaultSettings(machine.New(t, map[string]string{"/opt/cni/bin/capture-cni": installed, "/copy/capture-cni": good, "/var/lib/capture-cni/owner": "mesh"}))
		bin, state := machine.OpenDir(t, wanted.At("/opt/cni/bin")), machine.OpenDir(t, wanted.At("/var/lib/capture-cni"))
		lab.Check(t, os.Chmod(bin.Path()+"/"+conflist.PluginType, damaged.mode))
		p := Program{conflist.PluginType, wanted.At("/copy/capture-cni"), func(context.Context, string) error { return nil }}
		changed, err := p.install(t.Context(), bin, state)
		content, readErr := os.ReadFile(bin.Path() + "/" + conflist.PluginType)
		if string(content) != good || readErr != nil || changed != damage || err != nil {
			t.Errorf("of %d bytes, %s: changed %v, %d bytes are installed, %v, %v", len(installed), damaged.mode, changed, len(content), readErr, err)
		}
	}
}

// TestSameBytes compares programs that differ at one byte, also far behind their first.
func TestSameBytes(t *testing.T) {
	t.Parallel()
	const size = 200 << 10
	broken := errors.New("input/output error")
	content := bytes.Repeat([]byte{1}, size)
	for _, at := range []int{0, 64<<10 - 1, 64 << 10, 128 << 10, size - 1} {
		other := slices.Clone(content)
		other[at] = 2
		if same, err := sameBytes(bytes.NewReader(content), bytes.NewReader(other)); same || err != nil {
			t.Errorf("different at byte %d: %t, %v", at, same, err)
		}
	}
	for _, length := range []int{0, 1, 64 << 10, 128 << 10, size} {
		start := content[:length]
		if same, err := sameBytes(bytes.NewReader(start), bytes.NewReader(start)); !same || err != nil {
			t.Errorf("the same %d bytes: %t, %v", length, same, err)
		}
		if length == size {
			continue
		}
		for _, pair := range [][2][]byte{{start, content}, {content, start}} {
			if same, err := sameBytes(bytes.NewReader(pair[0]), bytes.NewReader(pair[1])); same || err != nil {
				t.Errorf("%d and %d bytes: %t, %v", len(pair[0]), len(pair[1]), same, err)
			}
		}
	}
	failing := func() io.Reader {
		return io.MultiReader(bytes.NewReader(content[:64<<10]), iotest.ErrReader(broken))
	}
	if same, err := sameBytes(failing(), failing()); same || !errors.Is(err, broken) {
		t.Errorf("files that can't be read: %t, %v", same, err)
	}
	for _, pair := range [][2]io.Reader{{iotest.ErrReader(broken), bytes.NewReader(nil)}, {bytes.NewReader(nil), iotest.ErrReader(broken)}} {
		if same, err := sameBytes(pair[0], pair[1]); same || !errors.Is(err, broken) {
			t.Errorf("an empty file and one that can't be read: %t, %v", same, err)
		}
	}
}

// TestProgramBeingWritten waits for a program that another process has open for writing,
// as a child of the agent has between its fork and its exec, until the deadline.
func TestProgramBeingWritten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho ran\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	writer, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(50*time.Millisecond, func() { _ = writer.Close() })
	if out, err := execute(t.Context(), path, nil, nil, nil); err != nil || string(out) != "ran\n" {
		t.Errorf("%q, %v", out, err)
	}
	writer, err = os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, _ = execute(ctx, path, nil, nil, nil) // an endless loop otherwise; Linux 6.11 runs the program
}
