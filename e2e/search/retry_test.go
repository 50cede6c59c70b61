// SPDX-License-Identifier: Apache-2.0

package search

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// retry is an innocent connection whose first SYN its server did not answer. The kernel
// sends the SYN again after a second, while later sequences run.
type retry struct {
	innocent
	fd    int
	since time.Time
}

// retryAfter is when the second SYN has certainly been sent.
const retryAfter = 1200 * time.Millisecond

// startRetry begins a connection while its server's backlog is full.
func (w *world) startRetry(f int, i innocent) error {
	server := w.served[i.server]
	server.forget()
	var fillers []int
	err := w.processes[i.server.by].Do(func() error {
		if err := unix.Listen(server.fd, 0); err != nil {
			return err
		}
		for range 2 {
			fd, err := dial{from: netip.AddrPortFrom(localhost[f], 0), to: netip.AddrPortFrom(localhost[f], i.server.port)}.open()
			if fd < 0 {
				return err
			}
			fillers = append(fillers, fd)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("filling a backlog: %w", err)
	}
	var fd int
	_ = w.processes[i.by].Do(func() error {
		fd, err = i.open()
		return nil
	})
	if fd < 0 {
		return fmt.Errorf("%s: %w", i.name, err)
	}
	w.retried = append(w.retried, retry{i, fd, time.Now()})
	for _, fd := range fillers {
		reset(fd)
	}
	return w.processes[i.server.by].Do(func() error { return unix.Listen(server.fd, 4096) })
}

// finishRetries returns the faults of those that should have succeeded by now, or of all.
func (w *world) finishRetries(all bool) (faults []string) {
	for len(w.retried) > 0 && (all || time.Since(w.retried[0].since) > retryAfter) {
		r := w.retried[0]
		w.retried = w.retried[1:]
		var established bool
		var err error
		wait(patience, func() bool {
			established, err = connected(r.fd)
			return established || err != nil
		})
		reset(r.fd)
		// It was accepted, if a sequence has reset it since.
		if !established && !errors.Is(err, unix.ECONNRESET) {
			faults = append(faults, fmt.Sprintf("%s is not answered when its SYN is sent again: %v", r.name, err))
		}
	}
	return faults
}
