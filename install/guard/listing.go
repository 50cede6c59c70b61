// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/capture-cni/capture-cni/install/cri"
)

// listingWait is the longest time, from the beginning of a listing of the sandboxes, for which rounds
// wait for it. After that, they examine the known pods, until a round finds the listing complete.
const listingWait = time.Second

// lister lists the sandboxes in a goroutine, one listing at a time.
type lister struct {
	runtime Runtime
	log     *slog.Logger
	pending *listing  // the listing whose result next has not used yet, or nil
	last    time.Time // time of the last successful listing, or zero
	fault   error     // why this round has no listing, or nil
	since   time.Time // time of the first fault since the last successful listing, or zero
}

// listing is one call of Runtime.Sandboxes. Its results may be read only after done is closed.
type listing struct {
	began     time.Time
	done      chan struct{}
	sandboxes []cri.Sandbox
	err       error
}

// errNotYet is the fault while the runtime has not yet answered the request for a listing.
var errNotYet = errors.New("it has not answered the request for a listing")

// next returns the running sandboxes, and clears fault. If the runtime returns an error, or does not
// answer within listingWait, or ctx ends, next sets fault instead, and returns no sandboxes.
func (l *lister) next(ctx context.Context) []cri.Sandbox {
	if l.pending == nil {
		l.pending = l.begin(ctx)
	}
	now := l.pending
	select {
	case <-now.done:
	default:
		select {
		case <-now.done:
		case <-time.After(time.Until(now.began.Add(listingWait))):
			l.failed(errNotYet)
			return nil
		case <-ctx.Done():
			l.fault = ctx.Err()
			return nil
		}
	}
	l.pending = nil
	if now.err != nil {
		l.failed(now.err)
		return nil
	}
	if !l.since.IsZero() {
		l.log.Info("the container runtime answers again", "brokenFor", time.Since(l.since).Round(time.Second))
	}
	l.fault, l.since, l.last = nil, time.Time{}, time.Now()
	return now.sandboxes
}

func (l *lister) begin(ctx context.Context) *listing {
	started := &listing{began: time.Now(), done: make(chan struct{})}
	go func() {
		defer close(started.done)
		started.sandboxes, started.err = l.runtime.Sandboxes(ctx)
	}()
	return started
}

// failed sets the fault, and logs it if it is the first one since the start or a successful listing.
func (l *lister) failed(err error) {
	l.fault = fmt.Errorf("the container runtime does not list its sandboxes: %w", err)
	if l.since.IsZero() {
		l.since = time.Now()
		l.log.Warn("listing the sandboxes failed; known pods are still examined, but not repaired, updated or evicted, "+
			"and pods that start or end are not noticed", "error", err)
	}
}

// done returns a channel that is closed when the pending listing ends, or nil if no listing is pending.
func (l *lister) done() <-chan struct{} {
	if l.pending == nil {
		return nil
	}
	return l.pending.done
}

// wait waits for the end of the pending listing, whose context has ended.
func (l *lister) wait() {
	if l.pending != nil {
		<-l.pending.done
	}
}

// eventStream notifies the guard about sandboxes that start.
type eventStream struct {
	started chan struct{} // has an element if sandboxes may have started since the last read
	open    atomic.Bool   // the runtime sends events
}

func newEventStream() *eventStream { return &eventStream{started: make(chan struct{}, 1)} }

// reopenPause is the pause between the end of an event stream, or of an attempt to open one, and the
// next attempt.
const reopenPause = 10 * time.Second

// listen receives events until ctx ends. It returns earlier after cri.ErrNoEvents.
func (s *eventStream) listen(ctx context.Context, runtime Runtime) {
	for ctx.Err() == nil {
		err := runtime.Listen(ctx, func() {
			s.open.Store(true)
			s.notify() // sandboxes may have started before
		}, s.notify)
		s.open.Store(false)
		if errors.Is(err, cri.ErrNoEvents) {
			return
		}
		sleep(ctx, reopenPause)
	}
}

// notify records that sandboxes may have started. It does not block, because one pending notification is
// enough for all events.
func (s *eventStream) notify() {
	select {
	case s.started <- struct{}{}:
	default:
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
