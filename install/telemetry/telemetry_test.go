// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// agent is a Listener at work.
type agent struct {
	socket   string
	registry *prometheus.Registry
	log      *lab.Log
}

// start listens at a socket until the test ends.
func start(t *testing.T, socket string, change ...func(*Settings)) *agent {
	t.Helper()
	a := &agent{socket: socket, registry: prometheus.NewRegistry(), log: &lab.Log{}}
	settings := Settings{Socket: socket, Plugin: os.Args[0], NetConf: []byte(`{"ipv6":"always"}`)}
	for _, c := range change {
		c(&settings)
	}
	l := New(settings, a.registry, nil, slog.New(slog.NewTextHandler(a.log, nil)))
	var wait sync.WaitGroup
	wait.Go(func() { l.Serve(t.Context()) })
	t.Cleanup(wait.Wait)
	return a
}

func newSocket(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "run", "s")
}

// value is that of a metric with some labels, "name=value" each.
func (a *agent) value(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	families, err := a.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "capture_cni_"+name {
			continue
		}
		for _, m := range family.GetMetric() {
			var have []string
			for _, pair := range m.GetLabel() {
				have = append(have, pair.GetName()+"="+pair.GetValue())
			}
			if slices.ContainsFunc(labels, func(l string) bool { return !slices.Contains(have, l) }) {
				continue
			}
			switch {
			case m.GetCounter() != nil:
				return m.GetCounter().GetValue()
			case m.GetHistogram() != nil:
				return float64(m.GetHistogram().GetSampleCount())
			}
			return m.GetGauge().GetValue()
		}
	}
	return -1
}

// expect waits for a metric's value.
func (a *agent) expect(t *testing.T, want float64, name string, labels ...string) {
	t.Helper()
	lab.Eventually(t, func() error {
		if got := a.value(t, name, labels...); got != want {
			return fmt.Errorf("%s %q is %v, want %v", name, labels, got, want)
		}
		return nil
	})
}

func (a *agent) expectReceived(t *testing.T, r record.Record) {
	t.Helper()
	lab.Eventually(t, func() error {
		if !record.Send(a.socket, r) {
			return fmt.Errorf("no agent listens: %s", a.log)
		}
		return nil
	})
}

var (
	captured = record.Record{
		Pod: capture.PodRef{Namespace: "shop", Name: "web", UID: "6c1f"}, Verdict: record.Captured, Backend: "nftables",
		Warnings: []string{"IPv6 is left uncaptured"}, Stages: map[record.Stage]float64{record.Deciding: .001, record.Committing: .004},
	}
	passed = record.Record{Pod: capture.PodRef{Namespace: "shop", Name: "batch"}, Verdict: record.Passed, Reason: capture.ReasonNotInjected}
	failed = record.Record{
		Pod: capture.PodRef{Namespace: "shop", Name: "bad", UID: "9d53"}, Verdict: record.Failed, Reason: capture.ReasonAnnotations, Code: 100, Message: "not a port",
	}
)

// TestHears makes metrics and lines of records.
func TestHears(t *testing.T) {
	t.Parallel()
	a := start(t, newSocket(t))
	for _, r := range []record.Record{captured, captured, passed, failed} {
		a.expectReceived(t, r)
	}
	a.expect(t, 2, "adds_total", "result=captured", "reason=")
	a.expect(t, 1, "adds_total", "result=passed", "reason=not injected")
	a.expect(t, 1, "adds_total", "result=failed", "reason=annotations")
	a.expect(t, 0, "adds_total", "result=failed", "reason=lookup")
	a.expect(t, 2, "add_stage_seconds", "stage=apply")
	a.expect(t, 2, "add_seconds", "result=captured")
	a.expect(t, 1, "failed_pods_total")
	a.expect(t, 1, "netconf_info", "hash=0e0428b6195e")
	a.expect(t, 1, "build_info", "version="+config.OwnVersion())
	other, works := failed, failed
	other.Pod.UID, works.Verdict, works.Reason = "9d54", record.Captured, ""
	for _, r := range []record.Record{failed, failed, other, works, failed} {
		a.expectReceived(t, r)
	}
	a.expect(t, 3, "failed_pods_total") // two, and one again
	a.expectAllReceived(t)              // the log comes after the metrics
	log := a.log.String()
	if strings.Count(log, "msg=captured") != 3 || strings.Count(log, "level=INFO") != 3 || !strings.Contains(log, "pod=shop/web") || !strings.Contains(log, "seconds.apply=0.004") || strings.Contains(log, "map[") || !strings.Contains(log, "IPv6 is left uncaptured") {
		t.Errorf("log %s", log)
	}
	if !strings.Contains(log, "not a port") || strings.Contains(log, "batch") {
		t.Errorf("log %s", log)
	}
}

// TestExempt counts a pod of the mesh that is not captured by its cause, logs it
// and keeps it for explain; of one outside the mesh it does none of the last two.
func TestExempt(t *testing.T) {
	t.Parallel()
	a := start(t, newSocket(t))
	exempt := record.Record{
		Time: time.Now(), Pod: capture.PodRef{Namespace: "shop", Name: "own-init", UID: "77aa"},
		Verdict: record.Passed, Reason: capture.ExemptReason(capture.InitContainer), Message: "container istio-init sets up the capture itself",
	}
	a.expectReceived(t, exempt)
	a.expectReceived(t, passed)
	a.expect(t, 1, "adds_total", "result=passed", "reason=exempt_init_container")
	a.expect(t, 0, "adds_total", "result=passed", "reason=exempt_disable_envoy")
	a.expect(t, 1, "adds_total", "result=passed", "reason=not injected")
	a.expectAllReceived(t)
	if log := a.log.String(); strings.Count(log, "exempt from capture") != 1 || !strings.Contains(log, "pod=shop/own-init") || !strings.Contains(log, "sets up the capture itself") {
		t.Errorf("log %s", log)
	}
	if got, err := LastRecord(HistoryDirectory(a.socket), "77aa"); err != nil || got.Reason != exempt.Reason {
		t.Errorf("of the last ADD is kept: %+v, %v", got, err)
	}
}

// TestUnreadable counts what it can't read, and goes on.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	a := start(t, newSocket(t))
	a.expectReceived(t, captured)
	for _, document := range []string{`{"version": 2, "verdict": "postponed"}`, "{", `{"version": 1, "verdict": "captured", "reason": "new"}`} {
		send(t, a.socket, document)
	}
	a.expectReceived(t, captured)
	a.expect(t, 2, "adds_total", "result=captured")
	a.expect(t, 1, "records_lost_total", "cause=version")
	a.expect(t, 2, "records_lost_total", "cause=form")
}

func send(t *testing.T, socket, document string) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Sendto(fd, []byte(document), 0, &unix.SockaddrUnix{Name: socket})
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(fd)
}

// TestReplays what was kept while no agent was there. It replaces no younger record of the
// same pod in the history.
func TestReplays(t *testing.T) {
	t.Parallel()
	socket := newSocket(t)
	younger := captured
	younger.Pod, younger.Time = failed.Pod, time.Unix(1000, 0)
	memory := HistoryDirectory(socket)
	if err := errors.Join(os.MkdirAll(record.Spool(socket), 0o700), os.MkdirAll(memory, 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := KeepRecord(memory, younger, false); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		r := failed
		r.Time = time.Unix(int64(i), 0)
		record.Keep(record.Spool(socket), r)
	}
	a := start(t, socket)
	a.expect(t, 3, "adds_total", "result=failed", "reason=annotations")
	lab.Eventually(t, func() error { // a record goes once it was taken
		entries, err := os.ReadDir(record.Spool(socket))
		if err != nil || len(entries) > 0 {
			return fmt.Errorf("left: %v, %v", entries, err)
		}
		return nil
	})
	if last, err := LastRecord(memory, failed.Pod.UID); err != nil || last.Verdict != record.Captured {
		t.Errorf("the last ADD of the pod: %+v, %v", last, err)
	}
}

// TestSocket is root's alone, and takes the place of what an agent left.
func TestSocket(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(path string) error{
		"nothing":                        func(string) error { return nil },
		"a socket":                       func(path string) error { return syscall.Mknod(path, syscall.S_IFSOCK|0o666, 0) },
		"a socket that was not finished": func(path string) error { return syscall.Mknod(path+".new", syscall.S_IFSOCK|0o666, 0) },
		"a file":                         func(path string) error { return os.WriteFile(path, nil, 0o666) },
		"a link":                         func(path string) error { return os.Symlink("/etc/hostname", path) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			socket := newSocket(t)
			if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := prepare(socket); err != nil {
				t.Fatal(err)
			}
			a := start(t, socket)
			a.expectReceived(t, captured)
			a.expect(t, 1, "adds_total", "result=captured")
			for path, want := range map[string]os.FileMode{
				socket: os.ModeSocket | 0o600, record.Spool(socket): os.ModeDir | 0o700, HistoryDirectory(socket): os.ModeDir | 0o700,
			} {
				if info, err := os.Lstat(path); err != nil || info.Mode() != want {
					t.Errorf("%s: %v, %v, want %s", path, info.Mode(), err, want)
				}
			}
		})
	}
}

// TestKubeletsDirectory takes over a directory of records that the kubelet has made for
// the guard's volume, and refuses one in which another user could have written.
func TestKubeletsDirectory(t *testing.T) {
	t.Parallel()
	for made, want := range map[os.FileMode]os.FileMode{0o755: 0o700, 0o757: 0o757} {
		socket := newSocket(t)
		dir := HistoryDirectory(socket)
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.Chmod(dir, made)); err != nil {
			t.Fatal(err)
		}
		a := start(t, socket)
		a.expectReceived(t, captured)
		a.expect(t, 1, "adds_total", "result=captured")
		if info, err := os.Lstat(dir); err != nil || info.Mode().Perm() != want {
			t.Errorf("made with %v: it has %v, %v", made, info.Mode(), err)
		}
		lab.Eventually(t, func() error {
			if entries, err := os.ReadDir(dir); err != nil || (len(entries) > 0) != (want == 0o700) {
				return fmt.Errorf("made with %v: it has %v, %v", made, entries, err)
			}
			return nil
		})
	}
}

// TestSocketIsADirectory is a reason to say so, and to try again.
func TestSocketIsADirectory(t *testing.T) {
	t.Parallel()
	socket := newSocket(t)
	if err := os.MkdirAll(socket, 0o755); err != nil {
		t.Fatal(err)
	}
	a := start(t, socket)
	lab.Eventually(t, func() error {
		if log := a.log.String(); !strings.Contains(log, "receiving records failed") {
			return fmt.Errorf("log %q", log)
		}
		return nil
	})
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	a.expectReceived(t, captured)
}

// TestEveryAgentReceives gives a thousand records to an agent, and the socket to a younger one.
func TestEveryAgentReceives(t *testing.T) {
	t.Parallel()
	socket := newSocket(t)
	first := start(t, socket)
	for i := range 1000 {
		r := failed
		r.Message = fmt.Sprint(i)
		first.expectReceived(t, r)
	}
	first.expect(t, 1000, "adds_total", "result=failed", "reason=annotations")
	second := start(t, socket)
	lab.Eventually(t, func() error {
		second.expectReceived(t, captured)
		if second.value(t, "adds_total", "result=captured") < 1 {
			return errors.New("the second agent receives nothing")
		}
		return nil
	})
}
