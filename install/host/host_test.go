// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

var (
	oldContent = []byte("old")
	newContent = bytes.Repeat([]byte("new"), 100_000)
)

func open(t *testing.T, directory string) *Dir {
	t.Helper()
	d, err := OpenDir(directory, nil)
	lab.Check(t, err)
	t.Cleanup(func() { lab.Check(t, d.Close()) })
	return d
}

// TestFailures wants the old file and no temporary one after a failure.
func TestFailures(t *testing.T) {
	lab.RequireRoot(t)
	mount := func(options string) func(t *testing.T, directory string) {
		return func(t *testing.T, directory string) {
			t.Helper()
			lab.Check(t, unix.Mount("none", directory, "tmpfs", 0, options))
			t.Cleanup(func() { _ = unix.Unmount(directory, unix.MNT_DETACH) })
		}
	}
	for name, test := range map[string]struct {
		prepare func(t *testing.T, directory string)
		after   func(t *testing.T, directory string)
		want    error
	}{
		"no space": {mount("size=64k"), func(*testing.T, string) {}, syscall.ENOSPC},
		"read-only": {mount("size=1m"), func(t *testing.T, directory string) {
			t.Helper()
			lab.Check(t, unix.Mount("none", directory, "tmpfs", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
		}, syscall.EROFS},
		"a directory is in the way": {mount("size=1m"), func(t *testing.T, directory string) {
			t.Helper()
			lab.Check(t, os.Remove(directory+"/conf"))
			lab.Check(t, os.Mkdir(directory+"/conf", 0o700))
		}, syscall.EEXIST},
	} {
		t.Run(name, func(t *testing.T) {
			directory := t.TempDir()
			test.prepare(t, directory)
			d := open(t, directory)
			lab.Check(t, d.Replace("conf", bytes.NewReader(oldContent), 0o600, nil))
			test.after(t, directory)
			before, err := d.Names()
			lab.Check(t, err)
			if err := d.Replace("conf", bytes.NewReader(newContent), 0o600, nil); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			if after, err := d.Names(); err != nil || !slices.Equal(after, before) {
				t.Errorf("left %q, %v", after, err)
			}
		})
	}
}

// TestTry keeps the old file if try returns an error.
func TestTry(t *testing.T) {
	t.Parallel()
	d := open(t, t.TempDir())
	lab.Check(t, d.Replace("conf", bytes.NewReader(oldContent), 0o600, nil))
	bad := errors.New("does not run")
	err := d.Replace("conf", bytes.NewReader(newContent), 0o755, func(path string) error {
		if content, err := os.ReadFile(path); err != nil || !bytes.Equal(content, newContent) {
			t.Errorf("the temporary file is incomplete: %v", err)
		}
		return bad
	})
	content, readErr := d.Read("conf")
	names, namesErr := d.Names()
	if !errors.Is(err, bad) || string(content) != "old" || len(names) != 1 || readErr != nil || namesErr != nil {
		t.Errorf("got %v, %q, %q", err, content, names)
	}
}

func TestModes(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	d := open(t, directory)
	perm := func() os.FileMode {
		info, err := os.Stat(directory + "/f")
		lab.Check(t, err)
		return info.Mode().Perm()
	}
	for _, test := range []struct {
		mode os.FileMode
		want os.FileMode
	}{{Kept, 0o600}, {0o644, 0o644}, {Kept, 0o644}, {0o755, 0o755}} {
		lab.Check(t, d.Replace("f", bytes.NewReader(oldContent), test.mode, nil))
		if got := perm(); got != test.want {
			t.Errorf("%+v: got %o, want %o", test.mode, got, test.want)
		}
	}
}

// TestMetadata expects what a replaced file keeps: always its SELinux label, its owner
// only if its mode is kept.
func TestMetadata(t *testing.T) {
	t.Parallel()
	lab.RequireRoot(t)
	const label = "system_u:object_r:container_file_t:s0"
	for _, test := range []struct {
		mode     os.FileMode
		uid, gid uint32
		perm     os.FileMode
	}{{Kept, 1000, 2000, 0o640}, {0o600, 0, 0, 0o600}} {
		directory := t.TempDir()
		d := open(t, directory)
		lab.Check(t, d.Replace("f", bytes.NewReader(oldContent), 0o640, nil))
		lab.Check(t, os.Chown(directory+"/f", 1000, 2000))
		lab.Check(t, unix.Setxattr(directory+"/f", selinux, []byte(label), 0))
		lab.Check(t, d.Replace("f", bytes.NewReader(newContent), test.mode, nil))
		var stat unix.Stat_t
		lab.Check(t, unix.Stat(directory+"/f", &stat))
		got := make([]byte, 256)
		n, err := unix.Getxattr(directory+"/f", selinux, got)
		if stat.Uid != test.uid || stat.Gid != test.gid || os.FileMode(stat.Mode&0o777) != test.perm || err != nil || string(got[:n]) != label {
			t.Errorf("%+v: owner %d:%d, mode %o, label %q, %v", test.mode, stat.Uid, stat.Gid, stat.Mode, got[:max(n, 0)], err)
		}
	}
}

// TestNeverOutside follows no link and no path out of the directory.
func TestNeverOutside(t *testing.T) {
	t.Parallel()
	outside, directory := t.TempDir(), t.TempDir()
	lab.Check(t, os.WriteFile(outside+"/secret", oldContent, 0o600))
	lab.Check(t, os.Symlink(outside, directory+"/link"))
	lab.Check(t, os.Symlink(outside+"/secret", directory+"/file"))
	d := open(t, directory)
	for _, name := range []string{"../" + filepath.Base(outside) + "/secret", "link/secret", "file"} {
		if content, err := d.Read(name); err == nil {
			t.Errorf("%s: read %q", name, content)
		}
	}
	lab.Check(t, d.Replace("file", bytes.NewReader(newContent), 0o600, nil)) // replaces the link, not its target
	if _, err := d.Sub("link", true); err == nil {
		t.Error("a link was opened as a subdirectory")
	}
	if content, err := os.ReadFile(outside + "/secret"); err != nil || string(content) != "old" {
		t.Errorf("the file outside is %q, %v", content, err)
	}
}

// TestLock does not run in parallel: a process that another test forks inherits
// the locked file until it executes its program.
func TestLock(t *testing.T) {
	directory := t.TempDir()
	first, err := open(t, directory).TryLock()
	lab.Check(t, err)
	if _, err := open(t, directory).TryLock(); !errors.Is(err, ErrLocked) {
		t.Errorf("got %v", err)
	}
	lab.Check(t, first.Close())
	second, err := open(t, directory).TryLock()
	lab.Check(t, err)
	lab.Check(t, second.Close())
}

// TestRenameReplacesNothing keeps a file that came meanwhile.
func TestRenameReplacesNothing(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	d := open(t, directory)
	lab.Check(t, errors.Join(os.WriteFile(directory+"/from", []byte("a"), 0o600), os.WriteFile(directory+"/to", []byte("b"), 0o600)))
	if err := d.Rename("from", "to"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("got %v", err)
	}
	for name, want := range map[string]string{"from": "a", "to": "b"} {
		if got, err := d.Read(name); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}
