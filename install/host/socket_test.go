// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// directory returns a directory with a short path.
func directory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "socket")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// TestListen makes sockets of both kinds, each in a directory that is not there yet
// and then in the place of an earlier one, whose listener goes on until it is closed.
func TestListen(t *testing.T) {
	t.Parallel()
	for network, listen := range map[string]func(string) (io.Closer, error){
		"unix":     func(path string) (io.Closer, error) { return ListenStream(t.Context(), path) },
		"unixgram": func(path string) (io.Closer, error) { return ListenDatagrams(t.Context(), path) },
	} {
		path := filepath.Join(directory(t), "a", "agent.sock")
		first, err := listen(path)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(filepath.Dir(path)); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: the directory has mode %v, %v", network, info.Mode(), err)
		}
		before, err := os.Lstat(path)
		if err != nil || before.Mode() != os.ModeSocket|0o600 {
			t.Errorf("%s: the socket has mode %v, %v", network, before.Mode(), err)
		}
		if err := os.WriteFile(path[:len(path)-1]+"~", nil, 0o644); err != nil { // an agent was killed
			t.Fatal(err)
		}
		second, err := listen(path)
		if err != nil {
			t.Fatal(err)
		}
		defer second.Close()
		if after, err := os.Lstat(path); err != nil || os.SameFile(before, after) {
			t.Errorf("%s: the socket was not replaced, %v", network, err)
		}
		unfinished := path[:len(path)-1] + "~" // of a third agent that begins meanwhile
		if err := os.WriteFile(unfinished, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(first.Close(), os.Remove(unfinished)); err != nil {
			t.Errorf("%s: closing the first socket: %v", network, err)
		}
		conn, err := net.Dial(network, path)
		if err != nil {
			t.Errorf("%s: %v", network, err)
			continue
		}
		_ = conn.Close()
		files, err := os.ReadDir(filepath.Dir(path))
		if err != nil || len(files) != 1 {
			t.Errorf("%s: %v, %v", network, files, err)
		}
	}
}

// TestModeFromTheFirstMoment looks at the file before it has its name.
func TestModeFromTheFirstMoment(t *testing.T) {
	t.Parallel()
	path := filepath.Join(directory(t), "agent.sock")
	_, err := replace(path, func(unfinished string) (*net.UnixListener, error) {
		listener, err := (&net.ListenConfig{Control: ownerOnly}).Listen(t.Context(), "unix", unfinished)
		if err != nil {
			return nil, err
		}
		if info, err := os.Lstat(unfinished); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the unfinished socket has mode %v, %v", info.Mode(), err)
		}
		return listener.(*net.UnixListener), nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestPath listens at the longest path that the kernel takes, and at one byte more.
func TestPath(t *testing.T) {
	t.Parallel()
	dir := directory(t)
	longest := dir + "/" + strings.Repeat("x", MaxPath-len(dir)-1)
	listener, err := ListenStream(t.Context(), longest)
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
	if _, err := ListenStream(t.Context(), longest+"x"); err == nil || !strings.Contains(err.Error(), longest+"x") {
		t.Errorf("got %v", err)
	}
}

// TestDirectory refuses a directory in which other users could replace the socket.
func TestDirectory(t *testing.T) {
	lab.RequireRoot(t)
	t.Parallel()
	for name, change := range map[string]func(dir string) error{
		"group":      func(dir string) error { return os.Chmod(dir, 0o770) },
		"everybody":  func(dir string) error { return os.Chmod(dir, 0o777) },
		"other user": func(dir string) error { return os.Chown(dir, 65534, 0) },
	} {
		dir := directory(t)
		if err := change(dir); err != nil {
			t.Fatal(err)
		}
		if _, err := ListenStream(t.Context(), dir+"/agent.sock"); err == nil || !strings.Contains(err.Error(), "expected a directory of user 0") {
			t.Errorf("%s: got %v", name, err)
		}
		if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
			t.Errorf("%s: made %v, %v", name, files, err)
		}
	}
}

// TestServeNoticesEachPath removes or replaces a socket, or its alias, while it serves: each is
// noticed, and a socket that was removed is made again at both.
func TestServeNoticesEachPath(t *testing.T) {
	t.Parallel()
	for i, name := range []string{"socket", "alias"} {
		for change, made := range map[string]func(path string) error{
			"removed": os.Remove,
			"replaced": func(path string) error {
				return errors.Join(os.WriteFile(path+"-new", nil, 0o600), os.Rename(path+"-new", path))
			},
		} {
			t.Run(name+" "+change, func(t *testing.T) {
				t.Parallel()
				dir := directory(t)
				paths := []string{filepath.Join(dir, "agent.sock"), filepath.Join(dir, "alias", "agent.sock")}
				listening, lost := make(chan struct{}, 8), make(chan error, 8)
				ctx, end := context.WithCancel(t.Context())
				var serving sync.WaitGroup
				serving.Go(func() {
					Serve(ctx, paths, func(ctx context.Context) (*net.UnixConn, error) {
						conn, err := ListenDatagrams(ctx, paths[0])
						if err == nil {
							err = Alias(paths[0], paths[1])
						}
						listening <- struct{}{}
						return conn, err
					}, func(conn *net.UnixConn) error {
						_, err := conn.Read(make([]byte, 1))
						return err
					}, func(err error) { lost <- err }, slog.New(slog.DiscardHandler))
				})
				t.Cleanup(func() { end(); serving.Wait() })
				<-listening
				if err := made(paths[i]); err != nil {
					t.Fatal(err)
				}
				noticed := "removed"
				select {
				case <-listening:
				case <-lost: // it listens again after a pause
					noticed = "replaced"
				case <-time.After(20 * checkInterval):
					t.Fatal("it was not noticed")
				}
				if noticed != change {
					t.Fatalf("it was %s, and taken for %s", change, noticed)
				}
				if change == "replaced" {
					return
				}
				for _, path := range paths {
					if conn, err := net.Dial("unixgram", path); err != nil {
						t.Error(err)
					} else {
						_ = conn.Close()
					}
				}
			})
		}
	}
}
