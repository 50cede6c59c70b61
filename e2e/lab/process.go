// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Process is a thread inside a host's namespace with a user and group of its own, and
// without any capability unless its user is root. What it does costs no change of thread.
type Process struct {
	calls chan func() error
	done  chan error
}

// Start starts a process. Close ends it.
func (h *Host) Start(owner Owner) (*Process, error) {
	p := &Process{make(chan func() error), make(chan error)}
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		err := h.NetNS.Set()
		if err == nil {
			err = become(owner)
		}
		p.done <- err
		for call := range p.calls {
			p.done <- call()
		}
	}()
	if err := <-p.done; err != nil {
		p.Close()
		return nil, fmt.Errorf("starting a process of %v: %w", owner, err)
	}
	return p, nil
}

// Do runs f on the process's thread.
func (p *Process) Do(f func() error) error {
	p.calls <- f
	return <-p.done
}

// Close ends the thread.
func (p *Process) Close() { close(p.calls) }

// become changes the ids of the calling thread. Go's functions would change all threads;
// with a user other than root, the kernel takes away the capabilities.
func become(owner Owner) error {
	var errs []error
	for _, call := range [][4]uintptr{
		{unix.SYS_SETGROUPS},
		{unix.SYS_SETRESGID, uintptr(owner.GID), uintptr(owner.GID), uintptr(owner.GID)},
		{unix.SYS_SETRESUID, uintptr(owner.UID), uintptr(owner.UID), uintptr(owner.UID)},
	} {
		if _, _, errno := unix.RawSyscall(call[0], call[1], call[2], call[3]); errno != 0 {
			errs = append(errs, errno)
		}
	}
	return errors.Join(errs...)
}
