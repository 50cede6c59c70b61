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

// Send sends a record to the agent without blocking, and reports whether the agent's socket accepted
// it. It returns false for every failure, for example if no agent runs, the socket's queue is full, or
// the path does not lead to a socket that root owns.
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

// ours reports whether a path leads to a socket that belongs to this process's own user, and to which
// only this user has access. With Multus, a user of a namespace can choose the path, and must not make
// root write to other sockets of the node.
func ours(socket string) bool {
	info, err := os.Lstat(socket)
	return err == nil && info.Mode().Type() == os.ModeSocket && trust.CheckOwner(socket, info, 0o077) == nil
}

// Spool returns the directory, next to the agent's socket, for records of failed ADDs that no agent
// received.
func Spool(socket string) string { return filepath.Join(filepath.Dir(socket), "failures") }

// These are the limits of the spool, in records and in bytes. If they are exceeded, the oldest records
// are deleted.
const (
	SpoolSize  = 64
	SpoolBytes = 1 << 20
)

// Keep writes a record to the spool, if the spool's directory exists. After a failure, the record is
// lost.
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

// Prune deletes the oldest records while there are more than most of them, or while they have more than
// mostBytes bytes. Unless most is 0, it keeps the newest one. Several processes may call Prune at the
// same time.
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
