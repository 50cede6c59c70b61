// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// TestSender takes no record of another user, though the socket lets one write.
func TestSender(t *testing.T) {
	t.Parallel()
	lab.RequireRoot(t)
	a := start(t, newSocket(t))
	a.expectReceived(t, captured)
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(os.Chmod(a.socket, 0o666))
	for dir := filepath.Dir(a.socket); dir != os.TempDir(); dir = filepath.Dir(dir) {
		check(os.Chmod(dir, 0o755))
	}
	document, err := json.Marshal(failed)
	check(err)
	check(sendAs(65534, a.socket, document))
	a.expect(t, 1, "records_lost_total", "cause=sender")
	a.expect(t, 0, "adds_total", "result=failed", "reason=annotations")
	check(sendAs(0, a.socket, document))
	a.expect(t, 1, "records_lost_total", "cause=version") // it has none
}

// sendAs sends as another user, by a thread that ends with it.
func sendAs(uid int, socket string, document []byte) error {
	sent := make(chan error)
	go func() {
		runtime.LockOSThread()
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			sent <- err
			return
		}
		defer unix.Close(fd)
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
			sent <- errno
			return
		}
		sent <- unix.Sendto(fd, document, 0, &unix.SockaddrUnix{Name: socket})
	}()
	return <-sent
}

// TestOpenDirectory listens in no directory in which another user could put a
// socket in the place of ours, and says what has to be changed.
func TestOpenDirectory(t *testing.T) {
	t.Parallel()
	socket := newSocket(t)
	dir := filepath.Dir(socket)
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o777)); err != nil {
		t.Fatal(err)
	}
	a := start(t, socket)
	lab.Eventually(t, func() error {
		if log := a.log.String(); !strings.Contains(log, "writable by its owner alone") || !strings.Contains(log, dir) {
			return fmt.Errorf("log %q", log)
		}
		return nil
	})
	if _, err := os.Lstat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("there is a socket: %v", err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { // as Kubernetes makes it
		t.Fatal(err)
	}
	a.expectReceived(t, captured)
}

// TestLogIsPaced has a pod that fails in a loop, and records that can't be read:
// all are counted, and those that are not logged are, too.
func TestLogIsPaced(t *testing.T) {
	t.Parallel()
	a := start(t, newSocket(t))
	sent := 0
	lab.Eventually(t, func() error {
		for range logBurst {
			a.expectReceived(t, failed)
			sent++
		}
		if a.value(t, "log_lines_dropped_total") == 0 {
			return fmt.Errorf("none of %d lines was dropped", sent)
		}
		return nil
	})
	a.expect(t, float64(sent), "adds_total", "result=failed", "reason=annotations")
	lab.Eventually(t, func() error { // the log comes after the metrics
		lines, dropped := strings.Count(a.log.String(), `msg="not captured`), a.value(t, "log_lines_dropped_total")
		if lines+int(dropped) != sent || lines < logBurst {
			return fmt.Errorf("%d lines, %v dropped of %d", lines, dropped, sent)
		}
		return nil
	})
	lab.Eventually(t, func() error {
		send(t, a.socket, "{")
		if log := a.log.String(); !strings.Contains(log, "lines were dropped") {
			return errors.New("the log does not say that lines were dropped")
		}
		return nil
	})
}

// TestTooLarge reads no datagram that is larger than a record.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	a := start(t, newSocket(t))
	a.expectReceived(t, captured)
	send(t, a.socket, `{"version":1,"verdict":"captured","message":"`+strings.Repeat("x", record.MaxSize)+`"}`)
	a.expect(t, 1, "records_lost_total", "cause=form")
	if log := a.log.String(); len(log) > 4<<10 {
		t.Errorf("the log has %d bytes", len(log))
	}
}

// TestHistoryIsPutRight goes on recording in a directory that was deleted or replaced,
// from the next record on.
func TestHistoryIsPutRight(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]os.FileMode{"deleted": 0, "replaced": 0o700, "made anew by a kubelet": 0o755} {
		a := start(t, newSocket(t))
		a.expectReceived(t, of("before", captured))
		a.expectAllReceived(t)
		memory := HistoryDirectory(a.socket)
		err := os.RemoveAll(memory)
		if mode != 0 {
			err = errors.Join(err, os.Mkdir(memory, mode))
		}
		if err != nil {
			t.Fatal(err)
		}
		a.expectReceived(t, of("after", captured))
		lab.Eventually(t, func() error {
			if _, err := LastRecord(memory, "after"); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		})
	}
}

// TestLevelAndPace has lines below the log's level, more than the pace allows: they take
// nothing from a line that the log has.
func TestLevelAndPace(t *testing.T) {
	t.Parallel()
	log := &lab.Log{}
	l := New(Settings{}, prometheus.NewRegistry(), nil, slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn})))
	for range 3 * logBurst {
		l.write(captured)
	}
	l.write(failed)
	if got := log.String(); !strings.Contains(got, "not captured, and not started") || strings.Contains(got, "dropped") {
		t.Errorf("the log is %q", got)
	}
}
