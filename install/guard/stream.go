// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/capture-cni/capture-cni/install/cri"
)

// eventStream notifies the guard of sandboxes that start.
type eventStream struct {
	started chan struct{} // one or more sandboxes have started since the last read
	open    atomic.Bool   // the runtime sends events
}

func newEventStream() *eventStream { return &eventStream{started: make(chan struct{}, 1)} }

// reopenPause is the pause after a stream has ended.
const reopenPause = 10 * time.Second

// listen receives events until ctx ends. It returns early for a runtime that sends
// none.
func (s *eventStream) listen(ctx context.Context, runtime Runtime) {
	for ctx.Err() == nil {
		err := runtime.Listen(ctx, func() {
			s.open.Store(true)
			s.notify() // of sandboxes that started before
		}, s.notify)
		s.open.Store(false)
		if errors.Is(err, cri.ErrNoEvents) {
			return
		}
		sleep(ctx, reopenPause)
	}
}

// notify never blocks: one pending notification stands for all events.
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
