// SPDX-License-Identifier: Apache-2.0

package host

import (
	"os"
	"path/filepath"
)

// Disk is called before each operation on the node's files, with the operation's name and the
// path. Its error fails the operation. A simulation sets it, to have a disk that fails.
var Disk = func(operation, path string) error { return nil }

// root is a directory whose operations Disk may fail.
type root struct {
	*os.Root
	path string
}

func openRoot(path string) (root, error) {
	if err := failure("opendir", path); err != nil {
		return root{}, err
	}
	opened, err := os.OpenRoot(path)
	return root{opened, path}, err
}

// failure returns Disk's error in the form of the operating system's errors.
func failure(operation, path string) error {
	if err := Disk(operation, path); err != nil {
		return &os.PathError{Op: operation, Path: path, Err: err}
	}
	return nil
}

func (r root) before(operation, name string) error {
	return failure(operation, filepath.Join(r.path, name))
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

func (r root) Lstat(name string) (os.FileInfo, error) {
	if err := r.before("stat", name); err != nil {
		return nil, err
	}
	return r.Root.Lstat(name)
}

func (r root) Mkdir(name string, perm os.FileMode) error {
	if err := r.before("mkdir", name); err != nil {
		return err
	}
	return r.Root.Mkdir(name, perm)
}

func (r root) Remove(name string) error {
	if err := r.before("remove", name); err != nil {
		return err
	}
	return r.Root.Remove(name)
}

func (r root) Rename(from, to string) error {
	if err := r.before("rename", to); err != nil {
		return err
	}
	return r.Root.Rename(from, to)
}

func (r root) Link(from, to string) error {
	if err := r.before("link", to); err != nil {
		return err
	}
	return r.Root.Link(from, to)
}
