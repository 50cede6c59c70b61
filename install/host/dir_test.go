// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestErrors expects each function to say what failed, and in which directory.
func TestErrors(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	lab.Check(t, errors.Join(
		os.WriteFile(path+"/conf", oldContent, 0o600), os.MkdirAll(path+"/full/file", 0o700), os.WriteFile(path+"/large", make([]byte, maxRead+1), 0o600),
	))
	d, closed := open(t, path), open(t, path)
	lab.Check(t, closed.Close())
	for want, call := range map[string]func() error{
		"opening directory DIR/none: open DIR/none: no such file or directory":         func() error { _, err := OpenDir(path+"/none", nil); return err },
		"creating directory DIR/conf/a: mkdir DIR/conf: not a directory":               func() error { _, err := MakeDir(path+"/conf/a", nil); return err },
		"opening a directory in DIR: openat none: no such file or directory":           func() error { _, err := d.Sub("none", false); return err },
		"opening a directory in DIR: open DIR/conf: not a directory":                   func() error { _, err := d.Sub("conf", true); return err },
		"creating a directory in DIR: mkdirat a/b: no such file or directory":          func() error { _, err := d.Sub("a/b", true); return err },
		"creating a directory in DIR: mkdirat sub: file already closed":                func() error { _, err := closed.Sub("sub", true); return err },
		"reading in DIR: statat conf/x: not a directory":                               func() error { _, err := d.Has("conf/x"); return err },
		"reading in DIR: statat conf: file already closed":                             func() error { return closed.Remove("conf") },
		"listing DIR: openat .: file already closed":                                   func() error { _, err := closed.Names(); return err },
		"listing DIR: openat . : file already closed":                                  func() error { return closed.ClearTemps() },
		"removing in DIR: removeat full: directory not empty":                          func() error { return d.Remove("full") },
		"triggering watches of DIR: openat a temporary file: file already closed":      func() error { return closed.TriggerWatch() },
		"renaming in DIR: linkat none a: no such file or directory":                    func() error { return d.Rename("none", "a") },
		"reading in DIR: readlinkat none: no such file or directory":                   func() error { _, err := d.Link("none"); return err },
		"opening DIR: openat .: file already closed (a power cut can undo the change)": func() error { return closed.Sync() },
		"opening DIR: openat . : file already closed":                                  func() error { _, err := closed.TryLock(); return err },
		"writing in DIR: openat conf: file already closed":                             func() error { return closed.Ensure("conf", newContent) },
		"writing conf/x in DIR: statat conf/x: not a directory":                        func() error { return d.Ensure("conf/x", newContent) },
		"reading in DIR: openat none: no such file or directory":                       func() error { _, err := d.Read("none"); return err },
		"reading in DIR: open DIR/full: not a regular file":                            func() error { _, err := d.Read("full"); return err },
		"read DIR/large: larger than 4 MiB":                                            func() error { _, err := ReadFile(path + "/large"); return err },
	} {
		err := call()
		got := strings.ReplaceAll(fmt.Sprint(err), path, "DIR")
		if got != strings.ReplaceAll(want, ". :", ".:") {
			t.Errorf("got error %s, want %s", got, want)
		}
	}
	if names, err := d.Names(); err != nil || !slices.Equal(names, []string{"conf", "large"}) {
		t.Errorf("left %q, %v", names, err)
	}
}

// TestDirectories expects what the functions say about files, and what they leave of them.
func TestDirectories(t *testing.T) {
	path := t.TempDir()
	lab.Check(t, os.WriteFile(path+"/first", nil, 0o600)) // the process's first file opens Go's poller
	descriptors, err := os.ReadDir("/proc/self/fd")
	lab.Check(t, err)
	d, err := MakeDir(path+"/a/b", nil)
	lab.Check(t, err)
	for range 2 { // the second one finds it
		sub, err := d.Sub("sub", true)
		lab.Check(t, err)
		if info, err := os.Stat(path + "/a/b/sub"); err != nil || info.Mode().Perm()&^0o022 != 0o755 || sub.Path() != path+"/a/b/sub" {
			t.Errorf("a subdirectory has the path %s and mode %v, %v", sub.Path(), info.Mode(), err)
		}
		lab.Check(t, errors.Join(sub.Ensure("conf", oldContent), sub.Ensure("link-of", oldContent)))
		before, err := os.Stat(sub.Path() + "/conf")
		lab.Check(t, errors.Join(err, sub.Ensure("conf", oldContent)))
		if after, err := os.Stat(sub.Path() + "/conf"); err != nil || !os.SameFile(before, after) || after.Mode() != 0o600 {
			t.Errorf("a file of the same content was replaced, or has mode %v; %v", after.Mode(), err)
		}
		lab.Check(t, sub.Ensure("conf", newContent))
		if content, err := sub.Read("conf"); err != nil || !bytes.Equal(content, newContent) {
			t.Errorf("got %d bytes, %v", len(content), err)
		}
		lab.Check(t, errors.Join(d.RemoveDir("sub"), sub.Close())) // it is not empty
	}
	if info, err := os.Stat(path + "/a"); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("a directory that was made has mode %v, %v", info.Mode(), err)
	}
	lab.Check(t, errors.Join(os.Symlink("leads/on", d.Path()+"/link"), d.Ensure("file", nil)))
	for name, want := range map[string]string{"link": "leads/on", "file": ""} {
		if got, err := d.Link(name); got != want || err != nil {
			t.Errorf("%s leads to %q, %v", name, got, err)
		}
	}
	old := time.Unix(1, 0)
	lab.Check(t, errors.Join(os.Chtimes(d.Path(), old, old), d.TriggerWatch()))
	if info, err := os.Stat(d.Path()); err != nil || info.ModTime().Equal(old) {
		t.Errorf("nothing has changed: %v, %v", info.ModTime(), err)
	}
	lab.Check(t, errors.Join(os.WriteFile(d.Path()+"/"+tempName(), nil, 0o600), d.ClearTemps(), d.Remove("none")))
	if names, err := d.Names(); err != nil || !slices.Equal(names, []string{"file", "link"}) {
		t.Errorf("left %q, %v", names, err)
	}
	lab.Check(t, d.Close())
	if after, err := os.ReadDir("/proc/self/fd"); err != nil || len(after) > len(descriptors) {
		t.Errorf("%d descriptors are open, before it were %d; %v", len(after), len(descriptors), err)
	}
}

// TestMountRoots has a mount point, and a path that is none.
func TestMountRoots(t *testing.T) {
	t.Parallel()
	roots := MountRoots()
	if root, is := roots["/proc/self"]; roots["/proc"] != "/" || is {
		t.Errorf("mounted: %q at /proc, %q at /proc/self", roots["/proc"], root)
	}
}

// TestIsAbsent takes a file of another kind for none.
func TestIsAbsent(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]bool{&fs.PathError{Err: syscall.ENOENT}: true, fmt.Errorf("a pipe: %w", ErrNotRegular): true, syscall.EACCES: false} {
		if got := IsAbsent(err); got != want {
			t.Errorf("%v: absent %t", err, got)
		}
	}
}

// TestGroup goes by the mode for the group if that is the process's and the owner is another.
func TestGroup(t *testing.T) {
	lab.RequireRoot(t)
	t.Parallel()
	for mode, want := range map[os.FileMode]bool{0o070: true, 0o707: false, 0o030: true, 0o050: false} {
		path := filepath.Join(t.TempDir(), "d")
		lab.Check(t, errors.Join(os.Mkdir(path, 0o700), os.Chown(path, 65534, os.Getegid()), os.Chmod(path, mode)))
		if got := modeAllows(path, 3); got != want {
			t.Errorf("mode %v allows: %t", mode, got)
		}
	}
}

// TestDisk has a Disk refuse each operation in turn. It sees the operation and the path, and its error is
// one of the operating system's.
func TestDisk(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	var refused string
	var seen []string
	disk := func(operation, path string) error {
		name := strings.TrimPrefix(path, directory)
		if IsTemp(filepath.Base(name)) {
			name = "/TEMP"
		}
		seen = append(seen, operation+" "+name)
		if operation == refused {
			return syscall.EIO
		}
		return nil
	}
	work := func() error {
		d, err := MakeDir(directory, disk)
		if err != nil {
			return err
		}
		defer d.Close()
		sub, err := d.Sub("sub", true)
		if err != nil {
			return err
		}
		defer sub.Close()
		_, readErr := d.Read("conf")
		_, listErr := d.Names()
		return errors.Join(d.Replace("conf", bytes.NewReader(newContent), 0o600, nil), readErr, listErr, sub.Sync(), d.Rename("conf", "other"), d.RemoveDir("sub"))
	}
	lab.Check(t, os.WriteFile(directory+"/conf", oldContent, 0o600))
	lab.Check(t, work())
	want := []string{
		"opendir ", "mkdir /sub", "open /conf", "list ", "create /TEMP", "write /TEMP", "open /conf", "sync /TEMP", "rename /conf", "syncdir ", "syncdir /sub",
		"link /other", "syncdir ", "remove /conf", "syncdir ", "remove /sub", "syncdir ",
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, operation := range []string{"opendir", "mkdir", "open", "list", "create", "write", "sync", "rename", "syncdir", "link", "remove"} {
		lab.Check(t, errors.Join(os.RemoveAll(directory), os.Mkdir(directory, 0o700), os.WriteFile(directory+"/conf", oldContent, 0o600)))
		refused = operation
		err := work()
		path, ok := errors.AsType[*os.PathError](err)
		if !ok || path.Op != operation || !strings.HasPrefix(path.Path, directory) || !errors.Is(err, syscall.EIO) {
			t.Errorf("%s: got %v", operation, err)
		}
		if strings.Contains(err.Error(), tempPrefix) {
			t.Errorf("%s: the name of a temporary file makes each error new: %v", operation, err)
		}
		if errors.Is(err, ErrUnsynced) != (operation == "syncdir") {
			t.Errorf("%s: %v: a power cut can undo the change: %v", operation, err, errors.Is(err, ErrUnsynced))
		}
	}
}

// TestSyncImpossible syncs a directory of a file system that can't, and deletes a temporary file that can't be deleted.
func TestSyncImpossible(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	d, err := OpenDir(directory, func(operation, _ string) error {
		return map[string]error{"syncdir": syscall.EINVAL, "remove": syscall.EROFS}[operation]
	})
	lab.Check(t, err)
	defer d.Close()
	lab.Check(t, d.Sync())
	lab.Check(t, d.ClearTemps())
	lab.Check(t, os.WriteFile(directory+"/"+tempPrefix+"X", nil, 0o600))
	if err := d.ClearTemps(); !errors.Is(err, syscall.EROFS) {
		t.Errorf("got %v", err)
	}
}
