// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/trust"
)

// MaxPath is the greatest length of a socket's path, in bytes. The socket's address has room for one byte
// more, which is a NUL.
const MaxPath = 107

// ListenStream creates a stream socket. Closing the listener does not delete the socket's file, so
// connections are refused until this agent or the next one replaces the file.
func ListenStream(ctx context.Context, path string) (*net.UnixListener, error) {
	return replace(path, func(unfinished string) (*net.UnixListener, error) {
		listener, err := (&net.ListenConfig{Control: ownerOnly}).Listen(ctx, "unix", unfinished)
		if err != nil {
			return nil, err
		}
		listener.(*net.UnixListener).SetUnlinkOnClose(false)
		return listener.(*net.UnixListener), nil
	})
}

// ListenDatagrams creates a datagram socket. The kernel passes the sender's credentials with each
// datagram.
func ListenDatagrams(ctx context.Context, path string) (*net.UnixConn, error) {
	return replace(path, func(unfinished string) (*net.UnixConn, error) {
		conn, err := (&net.ListenConfig{Control: ownerOnlyWithSenders}).ListenPacket(ctx, "unixgram", unfinished)
		if err != nil {
			return nil, err
		}
		return conn.(*net.UnixConn), nil
	})
}

// replace creates a socket under a temporary name, and then renames it to path.
func replace[S io.Closer](path string, listen func(unfinished string) (S, error)) (made S, err error) {
	if len(path) > MaxPath {
		return made, fmt.Errorf("the path of the socket %s has %d bytes: expected at most %d", path, len(path), MaxPath)
	}
	unfinished, err := prepare(path)
	if err != nil {
		return made, err
	}
	if made, err = listen(unfinished); err != nil {
		return made, err
	}
	if err := os.Rename(unfinished, path); err != nil {
		return made, errors.Join(err, made.Close(), os.Remove(unfinished))
	}
	return made, nil
}

var errRemoved = errors.New("the socket's file was removed")

const (
	checkInterval = time.Second     // between checks of a socket's paths
	relistenPause = 5 * time.Second // after a failed attempt to listen, or a loss of the socket other than errRemoved
)

// endpoint is a *net.UnixListener or a *net.UnixConn.
type endpoint interface {
	io.Closer
	SetDeadline(at time.Time) error
}

// Serve listens until ctx ends. It calls step repeatedly, which accepts a connection or reads a
// datagram until the socket's deadline. If listening fails or the socket is lost, Serve calls lost with
// the reason, and listens again after relistenPause. If only a file at one of the paths was deleted,
// Serve logs that and listens again at once. At its end, it leaves the file, which the next agent
// replaces.
func Serve[S endpoint](
	ctx context.Context, paths []string, listen func(context.Context) (S, error), step func(S) error, lost func(error), log *slog.Logger,
) {
	for ctx.Err() == nil {
		err := serve(ctx, paths, listen, step)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errRemoved) {
			log.Warn("a socket was removed; listening again", "error", err)
			continue
		}
		lost(err)
		select {
		case <-ctx.Done():
		case <-time.After(relistenPause):
		}
	}
}

// serve serves one socket until it is lost, and returns the reason, or until ctx ends.
func serve[S endpoint](ctx context.Context, paths []string, listen func(context.Context) (S, error), step func(S) error) (err error) {
	made, err := listen(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, made.Close()) }()
	file, err := os.Lstat(paths[0])
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = made.SetDeadline(time.Unix(1, 0)) })()
	for ctx.Err() == nil {
		for _, path := range paths {
			if err := checkPath(path, file); err != nil {
				return err
			}
		}
		err := made.SetDeadline(time.Now().Add(checkInterval))
		for err == nil && ctx.Err() == nil {
			err = step(made)
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
	}
	return nil
}

// checkPath returns errRemoved, with the path, if the socket's file is missing at a path, and another
// error if a different file is there.
func checkPath(path string, made os.FileInfo) error {
	found, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%w: %s", errRemoved, path)
	case err != nil:
		return err
	case !os.SameFile(made, found):
		return fmt.Errorf("another file is in the socket's place at %s", path)
	}
	return nil
}

// Alias creates a second path of a socket, and the path's directory, so that a container that mounts only
// this directory reaches the socket. Both paths must be on the same file system.
func Alias(path, alias string) error {
	unfinished, err := prepare(alias)
	if err != nil {
		return err
	}
	if err := os.Link(path, unfinished); err != nil {
		return err
	}
	return os.Rename(unfinished, alias)
}

// prepare creates the directory of a socket, and returns an unused temporary path in it. This path is
// as long as the socket's own, so it exceeds MaxPath only if the socket's own path does.
func prepare(path string) (unfinished string, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", fmt.Errorf("making the directory of the socket: %w", err)
	}
	directory := filepath.Dir(path)
	info, err := os.Stat(directory)
	if err != nil {
		return "", err
	}
	if err := trust.CheckOwner(directory, info, 0o022); err != nil { // otherwise another user could replace the socket
		return "", fmt.Errorf("%w; expected a directory of user %d, writable by its owner alone, such as 0755", err, os.Geteuid())
	}
	unfinished = path[:len(path)-1] + "~"
	if err := os.Remove(unfinished); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	return unfinished, nil
}

// ownerOnly sets the mode of the socket's file before the file is created.
func ownerOnly(_, _ string, raw syscall.RawConn) error {
	return control(raw, func(fd int) error { return unix.Fchmod(fd, 0o600) })
}

func ownerOnlyWithSenders(_, _ string, raw syscall.RawConn) error {
	return control(raw, func(fd int) error {
		return errors.Join(unix.Fchmod(fd, 0o600), unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSCRED, 1))
	})
}

func control(raw syscall.RawConn, f func(fd int) error) error {
	var err error
	if controlErr := raw.Control(func(fd uintptr) { err = f(int(fd)) }); controlErr != nil {
		return controlErr
	}
	return err
}
