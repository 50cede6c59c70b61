// SPDX-License-Identifier: Apache-2.0

package host

import (
	"os"
	"path/filepath"
)

// Disk is called before operations that open, list, write or change files in a directory, with the
// operation's name and the path. If it returns an error, the operation fails with this error.
// Simulations set a Disk; on a real node it is nil.
type Disk func(operation, path string) error

// root is an open directory with a Disk, which can make some of the directory's operations fail.
type root struct {
	*os.Root
	path string
	disk Disk
}

func openRoot(path string, disk Disk) (root, error) {
	r := root{path: path, disk: disk}
	err := r.before("opendir", "")
	if err == nil {
		r.Root, err = os.OpenRoot(path)
	}
	return r, err
}

// before calls the Disk, and returns the Disk's error in the form that package os gives to errors.
func (r root) before(operation, name string) error {
	if r.disk == nil {
		return nil
	}
	path := filepath.Join(r.path, name)
	if err := r.disk(operation, path); err != nil {
		return &os.PathError{Op: operation, Path: path, Err: err}
	}
	return nil
}

func (r root) OpenFile(name string, flag int, perm os.FileMode) (*os.File, error) {
	operation := "open"
	if flag&os.O_CREATE != 0 {
		operation = "create"
	}
	if err := r.before(operation, name); err != nil {
		return nil, err
	}
	return r.Root.OpenFile(name, flag, perm)
}

func (r root) Mkdir(name string, perm os.FileMode) error {
	return r.do("mkdir", name, func() error { return r.Root.Mkdir(name, perm) })
}

func (r root) Remove(name string) error {
	return r.do("remove", name, func() error { return r.Root.Remove(name) })
}

func (r root) Rename(from, to string) error {
	return r.do("rename", to, func() error { return r.Root.Rename(from, to) })
}

func (r root) Link(from, to string) error {
	return r.do("link", to, func() error { return r.Root.Link(from, to) })
}

func (r root) do(operation, name string, operate func() error) error {
	if err := r.before(operation, name); err != nil {
		return err
	}
	return operate()
}
