// SPDX-License-Identifier: Apache-2.0

package record

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// Dir is an open directory of records, one a file, that root alone can access.
type Dir struct{ root *os.Root }

// File is a file of a Dir. Names sort by the time of the record.
type File struct {
	Name string
	Size int64
}

// Endings of the names. An unfinished file counts, so that one whose writer was
// killed is deleted like any other.
const (
	unfinished = ".part"
	finished   = ".json"
)

// FileName returns the name of a record's file. A record without a time is the
// oldest.
func FileName(r Record, key string) string {
	return fmt.Sprintf("%020d-%s%s", max(0, r.Time.UnixNano()), key, finished)
}

// Key returns the key that a record was written with, and whether the file is a
// finished one.
func (f File) Key() (key string, ok bool) {
	_, rest, dashed := strings.Cut(f.Name, "-")
	key, ok = strings.CutSuffix(rest, finished)
	return key, ok && dashed
}

// OpenDir opens a directory of records, mode 0700. Errors: fs.ErrNotExist.
func OpenDir(path string) (*Dir, error) {
	root, err := OpenPrivate(path, 0o700)
	return &Dir{root}, err
}

// OpenPrivate opens a directory. It refuses a link, a directory of another user, and
// one with more permissions than mode. Errors: fs.ErrNotExist.
func OpenPrivate(path string, mode fs.FileMode) (*os.Root, error) {
	seen, err := os.Lstat(path)
	if err != nil {
		return nil, fmt.Errorf("opening a private directory: %w", err)
	}
	at, ok := seen.Sys().(*syscall.Stat_t)
	if !ok || !seen.IsDir() || seen.Mode().Perm()&^mode != 0 || int(at.Uid) != os.Geteuid() {
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

// OpenRegular opens a regular file of a directory for reading. A pipe there would hold the
// caller for ever. Errors: fs.ErrNotExist.
func OpenRegular(root *os.Root, name string) (*os.File, error) {
	file, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", file.Name())
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// Close closes the directory.
func (d *Dir) Close() error { return d.root.Close() }

// Files returns the files from the oldest to the youngest.
func (d *Dir) Files() (files []File) {
	entries, err := fs.ReadDir(d.root.FS(), ".")
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

// Write writes a record to a file of its own, as a whole or not at all.
func (d *Dir) Write(key string, r Record) (File, error) {
	name, document := FileName(r, key), encode(r)
	switch {
	case !isName(key, maxUID):
		return File{}, notName("a file's key", key, maxUID)
	case document == nil:
		return File{}, fmt.Errorf("writing a record: larger than %d bytes", MaxSize)
	}
	part := name + unfinished
	file, err := d.root.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return File{}, fmt.Errorf("writing a record: %w", err)
	}
	_, err = file.Write(document)
	if err = errors.Join(err, file.Close()); err == nil {
		err = d.root.Rename(part, name)
	}
	if err != nil {
		return File{}, errors.Join(fmt.Errorf("writing a record: %w", err), d.root.Remove(part))
	}
	return File{name, int64(len(document))}, nil
}

// Read reads the record of a file.
func (d *Dir) Read(f File) (Record, error) {
	document, err := d.document(f)
	if err != nil {
		return Record{}, err
	}
	return Read(document)
}

// document reads no more than a record can be.
func (d *Dir) document(f File) ([]byte, error) {
	file, err := OpenRegular(d.root, f.Name)
	if err != nil {
		return nil, fmt.Errorf("reading a record: %w", err)
	}
	document, err := io.ReadAll(io.LimitReader(file, MaxSize+1))
	return document, errors.Join(err, file.Close())
}

// Remove deletes a file. Another process may have deleted it before.
func (d *Dir) Remove(f File) error {
	if err := d.root.Remove(f.Name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("deleting a record: %w", err)
	}
	return nil
}

// ReadAll returns the records of a directory, from the oldest to the youngest. It
// leaves out files that hold no record. Errors: fs.ErrNotExist.
func ReadAll(path string) (records []Record, err error) {
	d, err := OpenDir(path)
	if err != nil {
		return nil, err
	}
	for _, file := range d.Files() {
		if _, ok := file.Key(); !ok {
			continue
		}
		if r, err := d.Read(file); err == nil {
			records = append(records, r)
		}
	}
	return records, d.Close()
}
