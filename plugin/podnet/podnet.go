// SPDX-License-Identifier: Apache-2.0

// Package podnet applies a Ruleset to a pod's network namespace, with the address and the policy routing
// that the rules need, and reads and removes them. It locks each namespace that it opens, with the
// exceptions that Open and OpenForRemoval describe, and refuses the host's own.
package podnet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/containernetworking/plugins/pkg/ns"
	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// ErrGone means that the namespace does not exist.
var ErrGone = errors.New("the network namespace does not exist")

// Namespace is a pod's network namespace, which is open and, unless lock is nil, locked. One thread of
// this process runs inside it.
type Namespace struct {
	netns  ns.NetNS
	thread sync.WaitGroup
	calls  chan func() // functions that the thread calls
	lock   *os.File    // nil if OpenForRemoval did not get the lock, or if there is a lockFault

	lockFault error
}

// Open opens the namespace at path and takes its lock, for which it waits until ctx ends. If there is a
// LockFault, it continues without the lock. Errors: ErrGone; ErrBusy; a capture.Refusal for the host's
// own namespace.
func Open(ctx context.Context, path string) (*Namespace, error) {
	return open(path, func(inode uint64) (*os.File, error) { return takeLock(ctx, inode) })
}

// OpenForRemoval opens a namespace like Open. If it can't take the lock, it continues without the lock,
// because DEL must not fail.
func OpenForRemoval(ctx context.Context, path string) (*Namespace, error) {
	return open(path, func(inode uint64) (*os.File, error) {
		taken, _ := takeLock(ctx, inode)
		return taken, nil
	})
}

func open(path string, lock func(inode uint64) (*os.File, error)) (*Namespace, error) {
	netns, err := ns.GetNS(path)
	if _, gone := errors.AsType[ns.NSPathNotExistErr](err); gone {
		return nil, fmt.Errorf("%w: %s", ErrGone, path)
	}
	if err != nil {
		return nil, fmt.Errorf("opening the network namespace: %w", err)
	}
	n := &Namespace{netns: netns, calls: make(chan func())}
	var own unix.Stat_t
	if err := errors.Join(n.refuseHost(), unix.Fstat(int(netns.Fd()), &own)); err != nil {
		return nil, errors.Join(err, netns.Close())
	}
	n.lock, err = lock(own.Ino)
	if foreign, ok := errors.AsType[foreignLock](err); ok {
		n.lockFault, err = foreign, nil
	}
	if err == nil {
		err = n.enter()
	}
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// LockFault returns why Open continued without the lock, or nil. Without the lock, another process of
// ours can change the namespace at the same time.
func (n *Namespace) LockFault() error { return n.lockFault }

// enter starts a thread that enters the namespace, executes all calls of Do, and leaves the namespace at
// Close.
func (n *Namespace) enter() error {
	entered := make(chan error, 2)
	n.thread.Go(func() {
		entered <- n.netns.Do(func(ns.NetNS) error {
			entered <- nil
			for call := range n.calls {
				call()
			}
			return nil
		})
	})
	return <-entered
}

// Close waits until the thread has left the namespace, and releases the lock. If that thread is the first one
// of process 1, as it can be in a container, Open would otherwise take the namespace for the host's. A second
// call returns an error.
func (n *Namespace) Close() error {
	if err := n.netns.Close(); err != nil {
		return err
	}
	close(n.calls)
	n.thread.Wait()
	if n.lock == nil {
		return nil
	}
	return releaseLock(n.lock)
}

// refuseHost returns a Refusal if the namespace is that of this thread or that of process 1, because both
// are the host's. It ignores process 1 if it can't read the path of that process's namespace.
func (n *Namespace) refuseHost() error {
	for _, path := range []string{"/proc/thread-self/ns/net", "/proc/1/ns/net"} {
		if n.Is(path) {
			return capture.Refusal(fmt.Sprintf("%s is the host's own network namespace: capture rules there would cut the node off", n.netns.Path()))
		}
	}
	return nil
}

// Do calls f on the thread inside the namespace, one call at a time. f must not call Do.
func (n *Namespace) Do(f func() error) error {
	done := make(chan error)
	n.calls <- func() { done <- recovered(f) }
	return <-done
}

// recovered calls f, and converts a panic to an error, because a caller of Do can't recover a panic in
// the other thread.
func recovered(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintf(os.Stderr, "%s\n", debug.Stack())
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return f()
}

// Read returns the result of f, which it calls in the namespace.
func Read[T any](n *Namespace, f func() (T, error)) (result T, err error) {
	err = n.Do(func() error {
		result, err = f()
		return err
	})
	return result, err
}

// Is reports whether the path leads to this namespace. It returns false if it can't read the path.
func (n *Namespace) Is(path string) bool { return sameFile(int(n.netns.Fd()), path) }

func sameFile(fd int, path string) bool {
	var own, there unix.Stat_t
	return errors.Join(unix.Fstat(fd, &own), unix.Stat(path, &there)) == nil && own.Dev == there.Dev && own.Ino == there.Ino
}

// Explained adds the name of AppArmor's profile to an error that looks like a denial by AppArmor, and
// returns any other error unchanged. It examines the error's text, because not every package wraps the
// kernel's error.
func Explained(err error) error {
	label, _ := os.ReadFile("/proc/self/attr/current") // empty without a security module
	profile, text := strings.TrimSpace(string(label)), err.Error()
	if !strings.HasSuffix(profile, " (enforce)") || !strings.Contains(text, "ermission denied") && !strings.Contains(text, "not permitted") {
		return err
	}
	return fmt.Errorf("%w: AppArmor confines this process with the profile %s: "+
		"look for a denial with `journalctl --dmesg --grep=DENIED` on the node (a `deny` rule is logged only with `audit`), "+
		"and allow the operation in that profile", err, profile)
}
