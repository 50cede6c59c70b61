// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/host"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// listen creates the socket, its second path for the guard, and the missing record directories next to
// it. Only root can access what listen creates. listen replaces an older socket by one rename.
func listen(ctx context.Context, path string) (*net.UnixConn, error) {
	conn, err := host.ListenDatagrams(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("listening for records: %w", err)
	}
	if err := host.Alias(path, config.GuardSocket(path)); err != nil {
		return nil, errors.Join(fmt.Errorf("listening for the guard's records: %w", err), conn.Close())
	}
	if err := makeDirectories(path); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

func makeDirectories(socket string) error {
	for _, dir := range []string{record.Spool(socket), HistoryDirectory(socket)} {
		if err := makePrivate(dir); err != nil {
			return fmt.Errorf("making a directory of records: %w", err)
		}
	}
	return nil
}

// kubeletsMode is the mode of a directory that the kubelet creates for a volume, such as the guard's.
const kubeletsMode = 0o755

// makePrivate creates a directory, or removes other users' permission to read an existing one. It
// leaves a directory unchanged in which other users could have written, because later attempts to open
// it return an error.
func makePrivate(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if !errors.Is(err, os.ErrExist) {
		return err
	}
	root, err := record.OpenPrivate(dir, kubeletsMode)
	if err != nil {
		return nil
	}
	return errors.Join(root.Chmod(".", 0o700), root.Close())
}

// isOurs reports whether a record's sender runs as the agent's own user, which is root for plugin,
// guard and agent.
func isOurs(control []byte) bool {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil || len(messages) != 1 {
		return false
	}
	sender, err := unix.ParseUnixCredentials(&messages[0])
	return err == nil && int(sender.Uid) == os.Geteuid()
}
