// SPDX-License-Identifier: Apache-2.0

//go:build linux

package record

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/trust"
)

// Send sends a record to the agent without blocking, and reports whether the
// agent's socket took it. No agent, a full queue, or another file in the socket's
// place are no errors.
func Send(socket string, r Record) (taken bool) {
	if !ours(socket) {
		return false
	}
	document := Encode(r)
	if document == nil {
		return false
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	return unix.Sendto(fd, document, unix.MSG_NOSIGNAL, &unix.SockaddrUnix{Name: socket}) == nil
}

// ours reports whether a path leads to a socket that this process's own user made
// and alone can write to. With Multus the path may come from a user of a namespace,
// who must not make root write to other sockets of the node.
func ours(socket string) bool {
	info, err := os.Lstat(socket)
	return err == nil && info.Mode().Type() == os.ModeSocket && trust.CheckOwner(socket, info, 0o077) == nil
}

// Spool returns the directory, next to the agent's socket, of the records that no
// agent received.
func Spool(socket string) string { return filepath.Join(filepath.Dir(socket), "failures") }

// Limits of the spool, in records and in bytes; the oldest are deleted first.
const (
	SpoolSize  = 64
	SpoolBytes = 1 << 20
)

// Keep writes a record to a spool that exists already. A record that can't be
// written is lost.
func Keep(spool string, r Record) {
	d, err := OpenDir(spool)
	if err != nil {
		return
	}
	defer func() { _ = d.Close() }()
	if err := d.Write(rand.Text(), r); err == nil {
		d.Prune(SpoolSize, SpoolBytes)
	}
}

// Prune deletes the oldest records beyond limits of their number and their bytes. Several
// processes may do so at once.
func (d *Dir) Prune(most int, mostBytes int64) {
	files := d.Files()
	var bytes int64
	for i, file := range slices.Backward(files) {
		bytes += file.Size
		if i < len(files)-most || bytes > mostBytes && i < len(files)-1 {
			_ = d.Remove(file)
		}
	}
}
