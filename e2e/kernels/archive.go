// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// archive is an initramfs in the "newc" format of cpio. The kernel unpacks archives one
// after the other, so several make one root directory.
type archive struct {
	content bytes.Buffer
	has     map[string]bool
}

// newArchive has a root directory that any user may enter.
func newArchive() *archive {
	a := &archive{has: map[string]bool{}}
	a.directory("/")
	return a
}

// file adds a file and the directories above it.
func (a *archive) file(path string, mode fs.FileMode, content []byte) {
	a.directory(filepath.Dir(path))
	a.entry(path, unix.S_IFREG|uint32(mode.Perm()), content)
}

// link adds a symbolic link.
func (a *archive) link(path, target string) {
	a.directory(filepath.Dir(path))
	a.entry(path, unix.S_IFLNK|0o777, []byte(target))
}

// directory adds a directory and those above it.
func (a *archive) directory(path string) {
	if a.has[path] {
		return
	}
	if above := filepath.Dir(path); above != path {
		a.directory(above)
	}
	a.entry(path, unix.S_IFDIR|0o755, nil)
}

// copy adds a file or a tree of this machine.
func (a *archive) copy(to, from string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(to, path[len(from):])
		if entry.IsDir() {
			a.directory(target)
			return nil
		}
		content, err := os.ReadFile(path) // of a link, what it leads to
		if err != nil {
			return err
		}
		info, err := os.Stat(path)
		if err == nil {
			a.file(target, info.Mode(), content)
		}
		return err
	})
}

// entry writes what the archive has not yet.
func (a *archive) entry(path string, mode uint32, content []byte) {
	if a.has[path] {
		return
	}
	a.has[path] = true
	a.write(len(a.has), "."+path, mode, content)
}

func (a *archive) write(inode int, name string, mode uint32, content []byte) {
	const links, zero = 1, 0
	fmt.Fprintf(&a.content, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x", inode, mode, zero, zero, links, zero,
		len(content), zero, zero, zero, zero, len(name)+1, zero)
	a.content.WriteString(name + "\x00")
	a.pad()
	a.content.Write(content)
	a.pad()
}

// pad fills up to a multiple of four bytes.
func (a *archive) pad() {
	for a.content.Len()%4 != 0 {
		a.content.WriteByte(0)
	}
}

// bytes ends the archive.
func (a *archive) bytes() []byte {
	a.write(0, "TRAILER!!!", 0, nil)
	return a.content.Bytes()
}
