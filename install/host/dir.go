// SPDX-License-Identifier: Apache-2.0

// Package host changes files of the node so that a crash at any moment leaves
// the old one or the new one, whole. It never leaves the folder it was given.
package host

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Dir is a folder of the node, opened once; what it does stays inside, whatever
// links somebody puts there.
type Dir struct {
	root *os.Root
	path string

	// Step, where set, is called before each change with what is about to be
	// done. Tests stop there for good.
	Step func(what string)
}

// OpenDir opens a folder that exists.
func OpenDir(path string) (*Dir, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("opening folder %s: %w", path, err)
	}
	return &Dir{root: root, path: path}, nil
}

// MakeDir opens a folder and makes it, for root alone, where it is missing.
func MakeDir(path string) (*Dir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("making folder %s: %w", path, err)
	}
	return OpenDir(path)
}

// Path is where the folder is.
func (d *Dir) Path() string { return d.path }

// Close closes the folder.
func (d *Dir) Close() error { return d.root.Close() }

// Sub opens a folder within and, on request, makes it.
func (d *Dir) Sub(name string, make bool) (*Dir, error) {
	if make {
		d.step("make " + name)
		if err := d.root.Mkdir(name, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("making a folder in %s: %w", d.path, err)
		}
	}
	root, err := d.root.OpenRoot(name)
	if err != nil {
		return nil, fmt.Errorf("opening a folder in %s: %w", d.path, err)
	}
	return &Dir{root: root, path: d.path + "/" + name, Step: d.Step}, nil
}

// Read gives a file's content.
func (d *Dir) Read(name string) ([]byte, error) {
	content, err := d.root.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("reading in %s: %w", d.path, err)
	}
	return content, nil
}

// Has tells whether a file is there.
func (d *Dir) Has(name string) (bool, error) {
	_, err := d.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking in %s: %w", d.path, err)
	}
	return true, nil
}

// Open opens a file to be read.
func (d *Dir) Open(name string) (*os.File, error) {
	file, err := d.root.Open(name)
	if err != nil {
		return nil, fmt.Errorf("reading in %s: %w", d.path, err)
	}
	return file, nil
}

// Names lists the files and links, sorted.
func (d *Dir) Names() ([]string, error) {
	return d.list(func(entry fs.DirEntry) bool { return !entry.IsDir() })
}

// Folders lists the folders, sorted.
func (d *Dir) Folders() ([]string, error) { return d.list(fs.DirEntry.IsDir) }

func (d *Dir) list(wanted func(fs.DirEntry) bool) ([]string, error) {
	entries, err := fs.ReadDir(d.root.FS(), ".")
	if err != nil {
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

// Remove deletes a file; one that is not there is gone already.
func (d *Dir) Remove(name string) error {
	if has, err := d.Has(name); err != nil || !has {
		return err
	}
	d.step("remove " + name)
	if err := d.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing in %s: %w", d.path, err)
	}
	return d.sync()
}

// RemoveDir deletes a folder within if it is empty.
func (d *Dir) RemoveDir(name string) error {
	d.step("remove " + name)
	err := d.root.Remove(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTEMPTY) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("removing in %s: %w", d.path, err)
	}
	return d.sync()
}

// Stir has those who watch the folder look at it again, though nothing of it
// has changed but a folder within: a temporary file comes and goes.
func (d *Dir) Stir() error {
	temp := tempName()
	d.step("create " + temp)
	file, err := d.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("stirring %s: %w", d.path, err)
	}
	d.step("remove " + temp)
	if err := errors.Join(file.Close(), d.root.Remove(temp)); err != nil {
		return fmt.Errorf("stirring %s: %w", d.path, err)
	}
	return nil
}

// Rename moves a file within the folder, over another one if it has to.
func (d *Dir) Rename(from, to string) error {
	d.step("rename " + from + " to " + to)
	if err := d.root.Rename(from, to); err != nil {
		return fmt.Errorf("renaming in %s: %w", d.path, err)
	}
	return d.sync()
}

// sync makes the folder's last change outlive a power cut.
func (d *Dir) sync() error {
	d.step("sync folder")
	folder, err := d.root.Open(".")
	if err != nil {
		return fmt.Errorf("opening %s: %w", d.path, err)
	}
	err = folder.Sync()
	if errors.Is(err, unix.EINVAL) { // some file systems know no such thing
		err = nil
	}
	return errors.Join(err, folder.Close())
}

func (d *Dir) step(what string) {
	if d.Step != nil {
		d.Step(what)
	}
}

// tempPrefix begins the names of files that are not finished. No runtime loads
// a file of such a name, and no two writers share one.
const tempPrefix = ".capture-cni-tmp-"

func tempName() string { return tempPrefix + rand.Text() }

// IsTemp tells the names of such files.
func IsTemp(name string) bool { return strings.HasPrefix(name, tempPrefix) }

// ClearTemps deletes what a process that was killed left unfinished.
func (d *Dir) ClearTemps() error {
	names, err := d.Names()
	if err != nil {
		return err
	}
	for _, name := range names {
		if IsTemp(name) {
			if err := d.Remove(name); err != nil {
				return err
			}
		}
	}
	return nil
}
