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
