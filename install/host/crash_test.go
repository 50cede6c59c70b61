// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// envDirectory and envChange make this program change a directory, on its main thread:
// to be killed, or to be traced.
const (
	envDirectory = "HOST_TEST_DIRECTORY"
	envChange    = "HOST_TEST_CHANGE"
)

var changes = map[string]func(d *Dir) error{
	"replace": func(d *Dir) error {
		return d.Replace("conf", bytes.NewReader(bytes.Repeat([]byte("new"), 100_000)), 0o600, nil)
	},
	"rename":           func(d *Dir) error { return d.Rename("conf", "renamed") },
	"remove":           func(d *Dir) error { return d.Remove("conf") },
	"remove directory": func(d *Dir) error { return d.RemoveDir("sub") },
}

func init() {
	directory := os.Getenv(envDirectory)
	if directory == "" {
		return
	}
	d, err := OpenDir(directory, nil)
	if err == nil {
		err = changes[os.Getenv(envChange)](d)
	}
	if err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// TestKilledAnywhere kills the writer before each of its changes: the file is the old
// one or the new one, and ClearTemps deletes what the writer left.
func TestKilledAnywhere(t *testing.T) {
	t.Parallel()
	lab.RequireProgram(t, "strace")
	seen := map[lab.Cut]string{}
	for _, call := range lab.FileChanges() {
		for cut, finished := (lab.Cut{Call: call, Nth: 1}), false; !finished; cut.Nth++ {
			directory := t.TempDir()
			d := open(t, directory)
			lab.Check(t, d.Replace("conf", bytes.NewReader(oldContent), 0o600, nil))
			command := cut.Command(os.Args[0])
			command.Env = append(os.Environ(), envDirectory+"="+directory, envChange+"=replace")
			finished = command.Run() == nil
			content, err := d.Read("conf")
			lab.Check(t, err)
			switch {
			case finished && bytes.Equal(content, newContent):
			case bytes.Equal(content, oldContent):
				seen[cut] = "old"
			case bytes.Equal(content, newContent):
				seen[cut] = "new"
			default:
				t.Fatalf("%s, %d bytes are there", cut, len(content))
			}
			lab.Check(t, d.ClearTemps())
			if names, err := d.Names(); err != nil || !slices.Equal(names, []string{"conf"}) {
				t.Errorf("%s: %q, %v", cut, names, err)
			}
		}
	}
	want := map[lab.Cut]string{{Call: "fchmod", Nth: 1}: "old", {Call: "fsync", Nth: 1}: "old", {Call: "renameat", Nth: 1}: "old", {Call: "fsync", Nth: 2}: "new"}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Error(diff)
	}
}

// TestOrder traces the system calls: a file is synced before it is renamed, and the
// directory after each change of its entries.
func TestOrder(t *testing.T) {
	t.Parallel()
	lab.RequireProgram(t, "strace")
	for change, want := range map[string][]string{
		"replace":          {"write", "fsync", "rename", "fsync"},
		"rename":           {"link", "fsync", "unlink", "fsync"},
		"remove":           {"unlink", "fsync"},
		"remove directory": {"unlink", "fsync"},
	} {
		directory := t.TempDir()
		lab.Check(t, errors.Join(os.WriteFile(directory+"/conf", oldContent, 0o600), os.Mkdir(directory+"/sub", 0o700)))
		trace := filepath.Join(t.TempDir(), "trace")
		command := exec.Command("strace", "-f", "-qq", "-y", "-e", "trace=write,fsync,linkat,renameat,renameat2,unlinkat", "-o", trace, os.Args[0])
		command.Env = append(os.Environ(), envDirectory+"="+directory, envChange+"="+change)
		lab.Check(t, command.Run())
		content, err := os.ReadFile(trace)
		lab.Check(t, err)
		var calls []string
		for _, match := range regexp.MustCompile(`(write|fsync|link|rename|unlink)(?:at2?)?\(\d+<`+regexp.QuoteMeta(directory)).FindAllStringSubmatch(string(content), -1) {
			calls = append(calls, match[1])
		}
		if got := slices.Compact(calls); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q in\n%s", change, got, want, content)
		}
	}
}
