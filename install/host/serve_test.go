// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// fake is a socket to which no process writes.
type fake struct {
	mu       sync.Mutex
	deadline time.Time
	changed  chan struct{}
	closed   bool
}

func (f *fake) Close() error { f.closed = true; return nil }

func (f *fake) SetDeadline(at time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deadline = at
	f.changed <- struct{}{}
	return nil
}

// read waits until the deadline.
func (f *fake) read() error {
	for {
		f.mu.Lock()
		left := time.Until(f.deadline)
		f.mu.Unlock()
		if left <= 0 {
			return os.ErrDeadlineExceeded
		}
		select {
		case <-f.changed:
		case <-time.After(left):
		}
	}
}

// TestServe loses a socket in each way: what it lost it with is reported, it is closed, and it is made
// again, after a pause unless its file was removed.
func TestServe(t *testing.T) {
	broken := errors.New("broken")
	remove := func(name string) func(dir string) error {
		return func(dir string) error { return os.Remove(filepath.Join(dir, name)) }
	}
	for name, tt := range map[string]struct {
		listen, step  error
		first, change func(dir string) error // at once, and while the third message is awaited
		lost, log     string
		after         time.Duration // it listens again
	}{
		"not made":         {listen: broken, lost: "broken", after: relistenPause},
		"a failure":        {step: broken, lost: "broken", after: 2*checkInterval + relistenPause},
		"no file at first": {first: remove("socket"), lost: "lstat ", after: relistenPause},
		"no directory": {
			change: func(dir string) error {
				return errors.Join(os.RemoveAll(dir+"/alias"), os.WriteFile(dir+"/alias", nil, 0o600))
			},
			lost: "not a directory", after: 3*checkInterval + relistenPause,
		},
		"removed": {change: remove("alias/socket"), log: `removed; listening again" error="the socket's file was removed: DIR/alias/socket"`, after: 3 * checkInterval},
		"replaced": {
			change: func(dir string) error { return os.Rename(dir+"/other", dir+"/socket") },
			lost:   "another file is in the socket's place", after: 3*checkInterval + relistenPause,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				paths := []string{filepath.Join(dir, "socket"), filepath.Join(dir, "alias", "socket")}
				lab.Check(t, errors.Join(os.Mkdir(dir+"/alias", 0o700), os.WriteFile(paths[0], nil, 0o600), os.Link(paths[0], paths[1])))
				lab.Check(t, os.WriteFile(dir+"/other", nil, 0o600))
				var sockets []*fake
				var listened []time.Time
				var lost []error
				var log bytes.Buffer
				ctx, end := context.WithCancel(t.Context())
				defer end()
				listen := func(context.Context) (*fake, error) {
					listened = append(listened, time.Now())
					if len(listened) > 1 {
						end()
					}
					if tt.listen != nil {
						return nil, tt.listen
					}
					if tt.first != nil {
						_ = tt.first(dir)
					}
					sockets = append(sockets, &fake{changed: make(chan struct{}, 9)})
					return sockets[len(sockets)-1], nil
				}
				steps := 0
				step := func(f *fake) error {
					if steps++; steps == 3 {
						if tt.change != nil {
							lab.Check(t, tt.change(dir))
						}
						if tt.step != nil {
							return tt.step
						}
					}
					return f.read()
				}
				began := time.Now()
				Serve(ctx, paths, listen, step, func(err error) { lost = append(lost, err) }, slog.New(slog.NewTextHandler(&log, nil)))
				if len(listened) != 2 || listened[1].Sub(began) != tt.after {
					t.Errorf("it listened at %v, want it again after %s", listened, tt.after)
				}
				reported := errors.Join(lost...)
				if (reported == nil) != (tt.lost == "") || len(lost) > 1 || reported != nil && !strings.Contains(reported.Error(), tt.lost) {
					t.Errorf("lost by %v, want %q", lost, tt.lost)
				}
				if !strings.Contains(log.String(), strings.Replace(tt.log, "DIR", dir, 1)) {
					t.Errorf("log %s, want %s", &log, tt.log)
				}
				for _, made := range sockets {
					if !made.closed {
						t.Error("a socket stays open")
					}
				}
			})
		})
	}
}

// TestServeEnds ends the agent while it waits for a message, and while it waits to listen again:
// Serve returns at once, and reports nothing.
func TestServeEnds(t *testing.T) {
	for name, listenErr := range map[string]error{"reading": nil, "pausing": errors.New("broken")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "socket")
				lab.Check(t, os.WriteFile(path, nil, 0o600))
				ctx, end := context.WithCancel(t.Context())
				made, lost, returned := &fake{changed: make(chan struct{}, 9)}, 0, false
				listen := func(context.Context) (*fake, error) { return made, listenErr }
				go func() {
					Serve(ctx, []string{path}, listen, (*fake).read, func(error) { lost++ }, slog.New(slog.DiscardHandler))
					returned = true
				}()
				synctest.Wait()
				before := lost
				end()
				synctest.Wait()
				if !returned || lost != before || listenErr == nil && (before != 0 || !made.closed) {
					t.Errorf("returned: %v, lost %d times, closed: %v", returned, lost, made.closed)
				}
			})
		})
	}
}

// TestNotMade has each step of making a socket, or its alias, fail: nothing unfinished is left.
func TestNotMade(t *testing.T) {
	t.Parallel()
	dir := directory(t)
	lab.Check(t, errors.Join(os.MkdirAll(dir+"/taken/x", 0o700), os.MkdirAll(dir+"/occupie~/x", 0o700), os.WriteFile(dir+"/file", nil, 0o600)))
	stream := func(path string) error { _, err := ListenStream(t.Context(), path); return err }
	datagrams := func(path string) error { _, err := ListenDatagrams(t.Context(), path); return err }
	alias := func(from string) func(string) error { return func(path string) error { return Alias(dir+from, path) } }
	for _, tt := range []struct {
		make      func(path string) error
		path, err string
	}{
		{stream, "/proc/self/new", "bind: "}, // that file system has no sockets
		{datagrams, "/proc/self/new", "bind: "},
		{stream, dir + "/file/new", "making the directory of the socket: "},
		{stream, dir + "/taken", "rename "},
		{stream, dir + "/occupied", "directory not empty"},
		{alias("/file"), dir + "/file/new", "making the directory of the socket: "},
		{alias("/missing"), dir + "/new", "link "},
		{alias("/file"), dir + "/taken", "rename "},
	} {
		if err := tt.make(tt.path); err == nil || !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: error %v, want %q", tt.path, err, tt.err)
		}
	}
	if left, err := filepath.Glob(dir + "/*~"); err != nil || len(left) != 2 {
		t.Errorf("left are %q, %v", left, err)
	}
}
