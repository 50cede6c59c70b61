// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"net"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// AgentSocket listens for datagrams at a path, as the node agent does. Only root may send to the socket.
func AgentSocket(t testing.TB, path string) *net.UnixConn {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	Check(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	Check(t, os.Chmod(path, 0o600))
	return conn
}

// Datagrams returns all datagrams that have arrived, without waiting for more.
func Datagrams(t testing.TB, conn *net.UnixConn) (sent [][]byte) {
	t.Helper()
	raw, err := conn.SyscallConn()
	Check(t, err)
	buffer := make([]byte, 128<<10)
	for {
		var size int
		var readErr error
		err := raw.Read(func(fd uintptr) bool {
			size, _, readErr = unix.Recvfrom(int(fd), buffer, unix.MSG_DONTWAIT)
			return true
		})
		if errors.Is(readErr, unix.EAGAIN) {
			return sent
		}
		Check(t, errors.Join(err, readErr))
		sent = append(sent, slices.Clone(buffer[:size]))
	}
}
