// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/capture-cni/capture-cni/install/cri"
)

// eventStream notifies of sandboxes that start.
type eventStream struct {
	started chan struct{} // one or more have started since it was last read
	open    atomic.Bool   // the runtime sends events
}

func newEventStream() *eventStream { return &eventStream{started: make(chan struct{}, 1)} }

// reopenPause is the pause after a stream has ended.
const reopenPause = 10 * time.Second

// listen goes on until ctx ends, or the runtime sends no events at all.
func (s *eventStream) listen(ctx context.Context, runtime Runtime) {
	for ctx.Err() == nil {
		err := runtime.Listen(ctx, func() {
			s.open.Store(true)
			s.notify() // of those that started before
		}, s.notify)
		s.open.Store(false)
		if errors.Is(err, cri.ErrNoEvents) {
			return
		}
		sleep(ctx, reopenPause)
	}
}

// notify never blocks: one notification stands for all until it is read.
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
