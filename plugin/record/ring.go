// SPDX-License-Identifier: Apache-2.0

package record

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Ring is the folder of what nobody took, beside the socket.
func Ring(socket string) string { return filepath.Join(filepath.Dir(socket), "failures") }

// Limits of the ring, in records and in bytes; the oldest goes first.
const (
	ringSize  = 64
	ringBytes = 1 << 20
)

// Keep writes a record into a folder that is there already, and root's alone.
// A record that can't be kept is lost.
func Keep(dir string, r Record) {
	root, err := openRing(dir)
	if err != nil {
		return
	}
	defer func() { _ = root.Close() }()
	if write(root, nameOf(r, rand.Text()), r) > 0 {
		prune(root)
	}
}

// nameOf sorts by time; a record without one is the oldest.
func nameOf(r Record, mark string) string {
	return fmt.Sprintf("%020d-%s", max(0, r.Time.UnixNano()), mark)
}

// Endings of the names. An unfinished file counts, so that one whose writer was
// killed goes like any other.
const (
	unfinished = ".part"
	finished   = ".json"
)

// openRing follows no link and opens nothing that others can write to.
func openRing(dir string) (*os.Root, error) {
	seen, err := os.Lstat(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the ring: %w", err)
	}
	at, ok := seen.Sys().(*syscall.Stat_t)
	if !ok || !seen.IsDir() || seen.Mode().Perm()&0o077 != 0 || int(at.Uid) != os.Geteuid() {
		return nil, fmt.Errorf("opening the ring: %s is no folder of root's alone", dir)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the ring: %w", err)
	}
	if opened, err := root.Stat("."); err != nil || !os.SameFile(seen, opened) {
		return nil, errors.Join(fmt.Errorf("opening the ring: %s was replaced", dir), err, root.Close())
	}
	return root, nil
}

// write leaves no file that is not whole. It returns the file's size, 0 where
// none could be written.
func write(root *os.Root, name string, r Record) (size int64) {
	document := encode(r)
	if document == nil {
		return 0
	}
	file, err := root.OpenFile(name+unfinished, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0
	}
	_, err = file.Write(document)
	if err = errors.Join(err, file.Close()); err == nil {
		err = root.Rename(name+unfinished, name+finished)
	}
	if err != nil {
		_ = root.Remove(name + unfinished)
		return 0
	}
	return int64(len(document))
}

// prune deletes the oldest beyond the ring's limits. Others may be doing the same.
func prune(root *os.Root) {
	files := list(root)
	var bytes int64
	for i, file := range slices.Backward(files) {
		bytes += file.size
		if i < len(files)-ringSize || bytes > ringBytes && i < len(files)-1 {
			_ = root.Remove(file.name)
		}
	}
}

// file is one of a ring or a history.
type file struct {
	name string
	size int64
}

// list returns the files from the oldest to the youngest.
func list(root *os.Root) (files []file) {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil
	}
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && info.Mode().IsRegular() {
			files = append(files, file{entry.Name(), info.Size()})
		}
	}
	return files
}

// Replay hands each document that was kept to take, the oldest first, and
// deletes it.
func Replay(dir string, take func(document []byte)) error {
	root, err := openRing(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	prune(root)
	for _, file := range list(root) {
		if !strings.HasSuffix(file.name, finished) {
			continue
		}
		if document, err := readSome(root, file.name); err == nil {
			take(document)
		}
		if err := root.Remove(file.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return errors.Join(fmt.Errorf("emptying the ring: %w", err), root.Close())
		}
	}
	return root.Close()
}

// readSome reads no more than a record can be.
func readSome(root *os.Root, name string) ([]byte, error) {
	file, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	document, err := io.ReadAll(io.LimitReader(file, MaxSize+1))
	return document, errors.Join(err, file.Close())
}
