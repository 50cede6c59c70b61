// SPDX-License-Identifier: Apache-2.0

package record

import (
	"os"

	"golang.org/x/sys/unix"
)

// Send hands a record to whoever listens, without waiting at all, and tells
// whether it was taken. Nobody there, a queue that is full or something else in
// the socket's place are no faults.
func Send(socket string, r Record) (taken bool) {
	if !ours(socket) {
		return false
	}
	document := encode(r)
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

// ours tells whether a socket is there that nobody but this process's own user
// can have made or can write to. Its path may come from a namespace's user (with
// Multus), who is not to have root write to any socket of the node.
func ours(socket string) bool {
	var at unix.Stat_t
	return unix.Lstat(socket, &at) == nil && at.Mode&unix.S_IFMT == unix.S_IFSOCK &&
		int(at.Uid) == os.Geteuid() && at.Mode&0o077 == 0
}
