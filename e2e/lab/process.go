// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Process is a thread inside a host's namespace that keeps its user and group. It has no capabilities
// unless the user is root. Many calls of Do are fast, because none of them changes the thread's ids.
type Process struct {
	calls chan func() error
	done  chan error
}

// Start starts a Process. The caller must call Close.
func (h *Host) Start(owner Owner) (*Process, error) {
	p := &Process{make(chan func() error), make(chan error)}
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread ends with the goroutine
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

// Close ends the Process.
func (p *Process) Close() { close(p.calls) }

// become changes the ids of the calling thread only, because Go's own functions would change all
// threads. If the user is not root, the kernel also clears the thread's capabilities.
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
