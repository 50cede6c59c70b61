// SPDX-License-Identifier: Apache-2.0

// Package host reads and changes files of the node. After a crash at any moment, either the whole old
// file or the whole new one exists. A Dir follows no link out of its directory. The package also creates
// the agent's sockets, which only the agent's user can use.
package host

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Dir is an open directory of the node.
type Dir struct {
	root root
	path string
}

// OpenDir opens an existing directory. disk may be nil.
func OpenDir(path string, disk Disk) (*Dir, error) {
	root, err := openRoot(path, disk)
	if err != nil {
		return nil, fmt.Errorf("opening directory %s: %w", path, err)
	}
	return &Dir{root: root, path: path}, nil
}

// MakeDir opens a directory. If it is missing, MakeDir creates it with mode 0700. disk may be
// nil.
func MakeDir(path string, disk Disk) (*Dir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("creating directory %s: %w", path, err)
	}
	return OpenDir(path, disk)
}

// Path returns the path with which the directory was opened.
func (d *Dir) Path() string { return d.path }

// Close closes the directory.
func (d *Dir) Close() error { return d.root.Close() }

// Sub opens a subdirectory. If it is missing and create is set, Sub creates it.
func (d *Dir) Sub(name string, create bool) (*Dir, error) {
	if create {
		if err := d.root.Mkdir(name, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("creating a directory in %s: %w", d.path, err)
		}
	}
	opened, err := d.root.OpenRoot(name)
	if err != nil {
		return nil, fmt.Errorf("opening a directory in %s: %w", d.path, err)
	}
	path := d.path + "/" + name
	return &Dir{root: root{opened, path, d.root.disk}, path: path}, nil
}

// Has reports whether the directory contains a file of this name.
func (d *Dir) Has(name string) (bool, error) {
	_, err := d.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading in %s: %w", d.path, err)
	}
	return true, nil
}

// Names returns the sorted names of all entries except subdirectories.
func (d *Dir) Names() ([]string, error) {
	return d.list(func(entry fs.DirEntry) bool { return !entry.IsDir() })
}

// Directories returns the sorted names of the subdirectories.
func (d *Dir) Directories() ([]string, error) { return d.list(fs.DirEntry.IsDir) }

func (d *Dir) list(wanted func(fs.DirEntry) bool) ([]string, error) {
	entries, err := fs.ReadDir(d.root.FS(), ".")
	if err := errors.Join(d.root.before("list", ""), err); err != nil {
		return nil, fmt.Errorf("listing %s: %w", d.path, err)
	}
	var names []string
	for _, entry := range entries {
		if wanted(entry) {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}

// Remove deletes files. A missing one is no error.
func (d *Dir) Remove(names ...string) (err error) {
	for _, name := range names {
		err = errors.Join(err, d.remove(name))
	}
	return err
}

func (d *Dir) remove(name string) error {
	if has, err := d.Has(name); err != nil || !has {
		return err
	}
	if err := d.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing in %s: %w", d.path, err)
	}
	return d.Sync()
}

// RemoveDir deletes a subdirectory, unless it contains files. A missing one is no error.
func (d *Dir) RemoveDir(name string) error {
	err := d.Remove(name)
	if errors.Is(err, syscall.ENOTEMPTY) {
		return nil
	}
	return err
}

// TriggerWatch creates and deletes a temporary file, so that a runtime that watches the directory reads
// it again. It is needed after a change in a subdirectory, which such a watch does not notice.
func (d *Dir) TriggerWatch() error {
	temp := tempName()
	file, err := d.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		err = errors.Join(file.Close(), d.root.Remove(temp))
	}
	if err != nil {
		return fmt.Errorf("triggering watches of %s: %w", d.path, withoutTemp(err, temp, "a temporary file"))
	}
	return nil
}

// Rename renames a file. It returns an error if a file with the new name exists.
func (d *Dir) Rename(from, to string) error {
	if err := d.root.Link(from, to); err != nil {
		return fmt.Errorf("renaming in %s: %w", d.path, err)
	}
	return errors.Join(d.Sync(), d.Remove(from)) // after a crash, at least one of the names exists
}

// Link returns the target of a symbolic link, or "" if the file is no symbolic link.
func (d *Dir) Link(name string) (string, error) {
	target, err := d.root.Readlink(name)
	if errors.Is(err, syscall.EINVAL) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading in %s: %w", d.path, err)
	}
	return target, nil
}

// DeletedRoot ends the path of a mounted directory that was deleted.
const DeletedRoot = "//deleted"

// MountRoots returns, for each mount point of the process, the mounted directory's path in its file
// system, as proc_pid_mountinfo(5) describes it. The path changes if the directory, or one above it, is
// renamed. If one is deleted, the path ends with DeletedRoot. If the kernel's list can't be read,
// MountRoots returns what it read.
func MountRoots() map[string]string {
	roots := map[string]string{}
	content, _ := ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(content)) {
		if fields := strings.Fields(line); len(fields) > 5 { // no field of the mount was cut off
			roots[fields[4]] = fields[3]
		}
	}
	return roots
}

// ErrUnsynced means that the names of a directory's files may not be on the disk, although all processes
// see them. A power cut can undo the change.
var ErrUnsynced = errors.New("a power cut can undo the change")

// Sync writes the names of the directory's files to the disk, if its file system can. Its errors wrap
// ErrUnsynced.
func (d *Dir) Sync() error {
	directory, err := d.root.Open(".")
	if err != nil {
		return fmt.Errorf("opening %s: %w (%w)", d.path, err, ErrUnsynced)
	}
	if err = d.root.before("syncdir", ""); err == nil {
		err = directory.Sync()
	}
	if errors.Is(err, unix.EINVAL) { // the file system can't sync directories
		err = nil
	}
	if err = errors.Join(err, directory.Close()); err != nil {
		return fmt.Errorf("syncing %s: %w (%w)", d.path, err, ErrUnsynced)
	}
	return nil
}

// tempPrefix begins the names of temporary files. Runtimes do not load these files, because their names
// lack the suffix of a network configuration.
const tempPrefix = ".capture-cni-tmp-"

func tempName() string { return tempPrefix + rand.Text() }

// IsTemp reports whether a name is that of a temporary file.
func IsTemp(name string) bool { return strings.HasPrefix(name, tempPrefix) }

// ClearTemps deletes the temporary files that killed processes left in the directory.
func (d *Dir) ClearTemps() error {
	names, err := d.Names()
	return errors.Join(err, d.Remove(slices.DeleteFunc(names, func(name string) bool { return !IsTemp(name) })...))
}

// ErrLocked means that another process holds the lock.
var ErrLocked = errors.New("another process holds the directory's lock")

// TryLock locks the directory until the Closer is closed or the process ends. If another process holds
// the lock, TryLock returns ErrLocked without waiting. It needs no lock file, so it works on a full disk.
func (d *Dir) TryLock() (io.Closer, error) {
	directory, err := d.root.Open(".")
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", d.path, err)
	}
	err = unix.Flock(int(directory.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = ErrLocked
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", d.path, err), directory.Close())
	}
	return directory, nil
}
