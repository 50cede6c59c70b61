// SPDX-License-Identifier: Apache-2.0

//go:build linux

package record

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/capture-cni/capture-cni/plugin/trust"
)

// Dir is an open directory with one record in each file. Only root can access it.
type Dir struct{ *os.Root }

// File is a file of a Dir. The names of files sort in the order of their records' times.
type File struct {
	Name string
	Size int64
}

// These are the suffixes of the names of files that are being written, and of complete files. A Dir
// lists both, so that Prune also deletes a file whose writer was killed.
const (
	Unfinished = ".part"
	Finished   = ".json"
)

// FileName returns the name of a record's file. A record without a time sorts before all others.
func FileName(r Record, key string) string {
	return fmt.Sprintf("%020d-%s%s", max(0, r.Time.UnixNano()), key, Finished)
}

// OpenDir opens a directory of records, to which only root may have access. Errors: fs.ErrNotExist.
func OpenDir(path string) (*Dir, error) {
	root, err := OpenPrivate(path, 0o700)
	return &Dir{root}, err
}

// OpenPrivate opens a directory. It returns an error for a symbolic link, a directory of another user,
// and a directory with more permissions than mode. Errors: fs.ErrNotExist.
func OpenPrivate(path string, mode fs.FileMode) (*os.Root, error) {
	seen, err := os.Lstat(path)
	if err != nil {
		return nil, fmt.Errorf("opening a private directory: %w", err)
	}
	if !seen.IsDir() || trust.CheckOwner(path, seen, fs.ModePerm&^mode) != nil {
		return nil, fmt.Errorf("opening a private directory: %s must be a directory owned by root, mode %#o", path, mode)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("opening a private directory: %w", err)
	}
	if opened, err := root.Stat("."); err != nil || !os.SameFile(seen, opened) {
		return nil, errors.Join(fmt.Errorf("opening a private directory: %s was replaced", path), err, root.Close())
	}
	return root, nil
}

// Files returns the files from the oldest to the newest, or none if it can't read the directory.
func (d *Dir) Files() (files []File) {
	entries, err := fs.ReadDir(d.Root.FS(), ".")
	if err != nil {
		return nil
	}
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && info.Mode().IsRegular() {
			files = append(files, File{entry.Name(), info.Size()})
		}
	}
	return files
}

// Write writes a record to a new file. After an error, it leaves no file.
func (d *Dir) Write(key string, r Record) error {
	name, document := FileName(r, key), Encode(r)
	if err := CheckName("a file's key", key, MaxUID); err != nil {
		return err
	}
	if document == nil {
		return fmt.Errorf("writing a record: larger than %d bytes", MaxSize)
	}
	if err := WriteFile(d.Root, name, document); err != nil {
		return fmt.Errorf("writing a record: %w", err)
	}
	return nil
}

// WriteFile writes a file under a temporary name and renames it. After an error, it leaves no part of
// the file, because a part would waste space on a full disk.
func WriteFile(root *os.Root, name string, content []byte) error {
	part := name + Unfinished
	err := root.WriteFile(part, content, 0o600)
	if err == nil {
		err = root.Rename(part, name)
	}
	if err != nil {
		_ = root.Remove(part)
	}
	return err
}

// Remove deletes a file. It succeeds if another process has already deleted the file.
func (d *Dir) Remove(f File) error {
	if err := d.Root.Remove(f.Name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("deleting a record: %w", err)
	}
	return nil
}
