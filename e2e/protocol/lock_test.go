// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestPodHoldsNoLock has an unprivileged process in the pod lock the files of its
// network namespace that it can open: ADD, CHECK and DEL do not wait for it.
func TestPodHoldsNoLock(t *testing.T) {
	t.Parallel()
	n, host := newNode(t), sandbox(t)
	const hold = "exec 9</proc/self/ns/net && flock -x 9 && ! cat /run/capture-cni/lock/netns && echo locked && exec sleep 30"
	holder := exec.Command("setpriv", "--reuid=2000", "--regid=2000", "--clear-groups", "--bounding-set=-all", "--no-new-privs", "sh", "-c", hold)
	out, err := holder.StdoutPipe()
	lab.Check(t, err)
	lab.Check(t, host.Do(holder.Start))
	t.Cleanup(func() { _ = holder.Process.Kill(); _ = holder.Wait() })
	released := make(chan struct{})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "locked\n" {
		t.Fatalf("the process in the pod wrote %q, %v", line, err)
	}
	go func() { _, _ = io.Copy(io.Discard, out); close(released) }()
	call{netns: host.Path(), stdin: n.conf("")}.run(t).succeeds(t)
	expectCaptured(t, host, true)
	call{command: "CHECK", netns: host.Path(), stdin: n.conf("")}.run(t).silent(t)
	call{command: "DEL", netns: host.Path(), stdin: n.conf("")}.run(t).silent(t)
	expectNoRules(t, host)
	select {
	case <-released:
		t.Error("the plugin waited until the process in the pod had ended")
	default:
	}
}

// TestNoLock has no /run for the lock file: ADD fails and leaves no rule, a pod outside
// the mesh starts, and DEL removes the rules.
func TestNoLock(t *testing.T) {
	t.Parallel()
	n, host := newNode(t), sandbox(t)
	n.isolatedWith(t, host, "ADD", "web", "", "no /run").fails(t, 999, "the lock of network namespaces", "/run")
	expectNoRules(t, host)
	n.isolatedWith(t, host, "ADD", "batch", "", "no /run").succeeds(t)
	call{netns: host.Path(), stdin: n.conf("")}.run(t).succeeds(t)
	n.isolatedWith(t, host, "DEL", "web", "", "no /run").silent(t)
	expectNoRules(t, host)
}

// TestForeignLock has a lock that another user owns or can open.
func TestForeignLock(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for name, prepare := range map[string]string{
		"file that all may read":        "mkdir -m 700 $L && install -m 644 /dev/null $L/netns",
		"file of another user":          "mkdir -m 700 $L && install -m 600 -o 2000 /dev/null $L/netns",
		"directory of another user":     "mkdir -m 700 $L && chown 2000 $L",
		"directory all may write to":    "mkdir -m 700 $L && chmod 777 $L",
		"link to a file elsewhere":      "mkdir -m 700 $L && ln -s /tmp/elsewhere $L/netns",
		"directory in the file's place": "mkdir -m 700 $L && mkdir $L/netns",
	} {
		t.Run(name, func(t *testing.T) {
			host := sandbox(t)
			plugin := call{netns: host.Path(), stdin: n.conf("")}.prepare()
			script := "set -e; mkdir -p /run/capture-cni; mount -t tmpfs none /run/capture-cni; L=/run/capture-cni/lock; " + prepare + `; exec "$1"`
			command := exec.Command("unshare", "--mount", "sh", "-c", script, "sh", plugin.Path)
			command.Env, command.Stdin = append(plugin.Env, "PATH="+os.Getenv("PATH")), plugin.Stdin
			finish(t, command).fails(t, 999, "the lock of network namespaces")
			expectNoRules(t, host)
		})
	}
}

// TestNamespaceLock holds the lock of one namespace: ADD waits for it, DEL and an ADD
// for another namespace do not.
func TestNamespaceLock(t *testing.T) {
	t.Parallel()
	lab.RequireRoot(t)
	n, host, other := newNode(t), sandbox(t), sandbox(t)
	lock, err := os.OpenFile("/run/capture-cni/lock/netns", os.O_RDWR|os.O_CREATE, 0o600)
	lab.Check(t, err)
	defer lock.Close()
	info, err := os.Stat(host.Path())
	lab.Check(t, err)
	inode := info.Sys().(*syscall.Stat_t).Ino
	lab.Check(t, unix.FcntlFlock(lock.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Start: int64(inode), Len: 1}))
	call{netns: other.Path(), stdin: n.conf("")}.run(t).succeeds(t)
	waiting := call{netns: host.Path(), stdin: n.conf("")}.prepare()
	lab.Check(t, waiting.Start())
	lab.Eventually(t, func() error { // the lock comes after the lookup
		if n.Requests() < 2 {
			return errors.New("the ADD has not read its pod")
		}
		return nil
	})
	for range 3 { // each takes longer than the rest of an ADD without a lock
		call{netns: sandbox(t).Path(), stdin: n.conf("")}.run(t).succeeds(t)
	}
	expectNoRules(t, host)
	call{command: "DEL", netns: host.Path(), stdin: n.conf("")}.run(t).silent(t)
	lab.Check(t, waiting.Process.Kill())
	_ = waiting.Wait()
	expectNoRules(t, host)
	lab.Check(t, lock.Close())
	call{netns: host.Path(), stdin: n.conf("")}.run(t).succeeds(t)
	expectCaptured(t, host, true)
}

// TestLockOutlivesDEL holds the lock of a captured pod for longer than a DEL may take: it
// removes the rules without the lock.
func TestLockOutlivesDEL(t *testing.T) {
	t.Parallel()
	n, host := newNode(t), sandbox(t)
	call{netns: host.Path(), stdin: n.conf("")}.run(t).succeeds(t)
	expectCaptured(t, host, true)
	lock, err := os.OpenFile("/run/capture-cni/lock/netns", os.O_RDWR, 0o600)
	lab.Check(t, err)
	defer lock.Close()
	info, err := os.Stat(host.Path())
	lab.Check(t, err)
	held := unix.Flock_t{Type: unix.F_WRLCK, Start: int64(info.Sys().(*syscall.Stat_t).Ino), Len: 1}
	lab.Check(t, unix.FcntlFlock(lock.Fd(), unix.F_OFD_SETLK, &held))
	call{command: "DEL", netns: host.Path(), stdin: n.conf("")}.run(t).silent(t)
	expectNoRules(t, host)
}

// TestReaderHoldsNoLock has a process that can only read the lock's file, as by a volume
// of the node, lock all of it, or take a lease on it: ADD, CHECK and DEL go on, and ADD says
// so. The kernel holds who opens a leased file for writing for 45 s (lease-break-time).
func TestReaderHoldsNoLock(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(fd uintptr) error{
		"lock": func(fd uintptr) error {
			return unix.FcntlFlock(fd, unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_RDLCK})
		},
		"lease": func(fd uintptr) error {
			_, err := unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_RDLCK)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			n, host := newNode(t), sandbox(t)
			run := t.TempDir()
			lab.Check(t, os.Mkdir(run+"/lock", 0o700))
			lab.Check(t, os.WriteFile(run+"/lock/netns", nil, 0o600))
			signal.Ignore(unix.SIGIO) // by which the kernel asks for a lease back
			reader, err := os.Open(run + "/lock/netns")
			lab.Check(t, err)
			defer reader.Close()
			execute := func(verb string) outcome {
				lab.Check(t, take(reader.Fd())) // again: a lease that the kernel asked for is over
				plugin := call{command: verb, netns: host.Path(), stdin: n.conf("")}.prepare()
				const script = `mkdir -p /run/capture-cni && mount --bind "$1" /run/capture-cni && exec "$2"`
				command := exec.Command("unshare", "--mount", "sh", "-c", script, "sh", run, plugin.Path)
				command.Env, command.Stdin = append(plugin.Env, "PATH="+os.Getenv("PATH")), plugin.Stdin
				began := time.Now()
				done := finish(t, command)
				if took := time.Since(began); took > 20*time.Second {
					t.Errorf("%s took %s", verb, took)
				}
				return done
			}
			add := execute("ADD")
			add.succeeds(t)
			if !strings.Contains(add.stderr, "continuing without a lock") || !strings.Contains(add.stderr, "/run/capture-cni/lock/netns") {
				t.Errorf("ADD says %q", add.stderr)
			}
			expectCaptured(t, host, true)
			execute("CHECK").silent(t)
			execute("DEL").silent(t)
			expectNoRules(t, host)
		})
	}
}
