// SPDX-License-Identifier: Apache-2.0

package report

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Ring is the folder of what nobody took, beside the socket.
func Ring(socket string) string { return filepath.Join(filepath.Dir(socket), "failures") }

// ringSize is how many records are kept at most; the oldest goes first.
const ringSize = 64

// Keep writes a record into a folder that is there already, and root's alone.
// A record that can't be kept is lost.
func Keep(dir string, r Record) {
	root, err := openRing(dir)
	if err != nil {
		return
	}
	defer func() { _ = root.Close() }()
	if write(root, nameOf(r, rand.Text()), r) {
		prune(root, ringSize)
	}
}

// nameOf sorts by time.
func nameOf(r Record, mark string) string { return fmt.Sprintf("%020d-%s", r.Time.UnixNano(), mark) }

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

// write leaves no file that is not whole.
func write(root *os.Root, name string, r Record) bool {
	document := encode(r)
	if document == nil {
		return false
	}
	file, err := root.OpenFile(name+unfinished, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return false
	}
	_, err = file.Write(document)
	if err = errors.Join(err, file.Close()); err == nil {
		err = root.Rename(name+unfinished, name+finished)
	}
	if err != nil {
		_ = root.Remove(name + unfinished)
	}
	return err == nil
}

// prune deletes the oldest. Others may be doing the same.
func prune(root *os.Root, size int) {
	names := list(root)
	for _, name := range names[:max(0, len(names)-size)] {
		_ = root.Remove(name)
	}
}

// list gives the names from the oldest to the youngest.
func list(root *os.Root) (names []string) {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil
	}
	for _, entry := range entries {
		if entry.Type().IsRegular() {
			names = append(names, entry.Name())
		}
	}
	return names
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
	for _, name := range list(root) {
		if !strings.HasSuffix(name, finished) {
			continue
		}
		if document, err := readSome(root, name); err == nil {
			take(document)
		}
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
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
