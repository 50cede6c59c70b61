// SPDX-License-Identifier: Apache-2.0

package record

import (
	"os"

	"golang.org/x/sys/unix"
)

// Send sends a record to the agent without blocking, and reports whether the
// agent's socket took it. No agent, a full queue, or another file in the socket's
// place are no errors.
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

// ours reports whether a path leads to a socket that this process's own user made
// and alone can write to. With Multus the path may come from a user of a namespace,
// who must not make root write to other sockets of the node.
func ours(socket string) bool {
	var at unix.Stat_t
	return unix.Lstat(socket, &at) == nil && at.Mode&unix.S_IFMT == unix.S_IFSOCK &&
		int(at.Uid) == os.Geteuid() && at.Mode&0o077 == 0
}
