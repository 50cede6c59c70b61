// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/install/history"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// listen makes the socket, and the directories next to it, accessible to root alone
// from the first moment on. It replaces an older socket in one step.
func listen(ctx context.Context, path string) (*net.UnixConn, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("making the directory of the socket: %w", err)
	}
	for _, dir := range []string{record.Spool(path), history.Directory(path)} {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, fmt.Errorf("making a directory of records: %w", err)
		}
	}
	if err := checkDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	unfinished := path + ".new"
	if err := os.Remove(unfinished); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("listening for records: %w", err)
	}
	conn, err := (&net.ListenConfig{Control: rootOnly}).ListenPacket(ctx, "unixgram", unfinished)
	if err != nil {
		return nil, fmt.Errorf("listening for records: %w", err)
	}
	if err := os.Rename(unfinished, path); err != nil {
		return nil, errors.Join(fmt.Errorf("listening for records: %w", err), conn.Close(), os.Remove(unfinished))
	}
	return conn.(*net.UnixConn), nil
}

// rootOnly sets the mode of the socket's file before the file is made, and has the
// kernel pass the sender's credentials with each record.
func rootOnly(_, _ string, raw syscall.RawConn) error {
	var err error
	if controlErr := raw.Control(func(fd uintptr) {
		err = errors.Join(unix.Fchmod(int(fd), 0o600), unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1))
	}); controlErr != nil {
		return controlErr
	}
	return err
}

// isOurs reports whether a record's sender is of the agent's own user: plugin and
// guard are root, as the agent is.
func isOurs(control []byte) bool {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil || len(messages) != 1 {
		return false
	}
	sender, err := unix.ParseUnixCredentials(&messages[0])
	return err == nil && int(sender.Uid) == os.Geteuid()
}

// checkDir refuses a directory in which another user could put a socket in the
// place of ours.
func checkDir(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("listening for records: %w", err)
	}
	at, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(at.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("listening for records: %s has mode %s: expected a directory of user %d, writable by its owner alone, such as 0755", dir, info.Mode(), os.Geteuid())
	}
	return nil
}
