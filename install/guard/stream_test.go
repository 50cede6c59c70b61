// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/cri"
)

// streamer is a Runtime whose streams a test makes.
type streamer struct {
	Runtime
	stream func(ctx context.Context, connected, began func()) error
	calls  atomic.Int32
}

func (r *streamer) Listen(ctx context.Context, connected, began func()) error {
	r.calls.Add(1)
	return r.stream(ctx, connected, began)
}

// emptyNode is a Runtime without pods that counts the listings.
type emptyNode struct {
	*streamer
	listings atomic.Int32
}

func (n *emptyNode) Sandboxes(context.Context) ([]cri.Sandbox, error) {
	n.listings.Add(1)
	return nil, nil
}

// TestPollInterval lists the sandboxes each second or, while the runtime sends
// events, less often, but at least once a round.
func TestPollInterval(t *testing.T) {
	t.Parallel()
	noEvents := func(context.Context, func(), func()) error { return cri.ErrNoEvents }
	sending := func(ctx context.Context, connected, _ func()) error {
		connected()
		<-ctx.Done()
		return ctx.Err()
	}
	for _, tt := range []struct {
		name   string
		stream func(ctx context.Context, connected, began func()) error
		round  time.Duration
		want   int32 // listings in a minute
	}{
		{"no events", noEvents, 30 * time.Second, 60},
		{"events", sending, 30 * time.Second, 12},
		{"a short round", sending, 2 * time.Second, 30},
		{"no round at all", sending, 0, 60},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := &emptyNode{streamer: &streamer{stream: tt.stream}}
				g := New(Settings{Conf: config.Default(), Round: tt.round}, n, &agent{answer: failing(errors.New("no agent"))}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go g.Run(ctx)
				time.Sleep(10*time.Second + 500*time.Millisecond)
				before := n.listings.Load()
				time.Sleep(time.Minute)
				if got := n.listings.Load() - before; got != tt.want {
					t.Errorf("%d listings in a minute, want %d", got, tt.want)
				}
			})
		})
	}
}

// TestEventEndsThePause lists the sandboxes soon after one has started, in the middle of
// the pause between two listings.
func TestEventEndsThePause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		starts := make(chan struct{})
		n := &emptyNode{streamer: &streamer{stream: func(ctx context.Context, connected, began func()) error {
			connected()
			<-starts
			began()
			<-ctx.Done()
			return ctx.Err()
		}}}
		g := New(Settings{Conf: config.Default(), Round: time.Hour}, n, &agent{answer: failing(errors.New("no agent"))}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go g.Run(ctx)
		time.Sleep(pollIntervalWithEvents + time.Second)
		synctest.Wait()
		before := n.listings.Load()
		close(starts)
		time.Sleep(settleDelay)
		synctest.Wait()
		if got := n.listings.Load() - before; got != 1 {
			t.Errorf("%d listings after an event, want 1", got)
		}
	})
}

// TestNotify keeps one notification until it is read, and never blocks.
func TestNotify(t *testing.T) {
	t.Parallel()
	e := newEventStream()
	for range 3 {
		for range 100 {
			e.notify()
		}
		if pending := len(e.started); pending != 1 {
			t.Fatalf("%d notifications are pending", pending)
		}
		<-e.started
		if pending := len(e.started); pending != 0 {
			t.Fatalf("%d notifications are pending after the read", pending)
		}
	}
}

// TestNoEvents asks a runtime that sends no events only once.
func TestNoEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &streamer{stream: func(context.Context, func(), func()) error {
			return fmt.Errorf("%w: containerd 1.7.29", cri.ErrNoEvents)
		}}
		e := newEventStream()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		e.listen(ctx, r)
		if ctx.Err() != nil {
			t.Error("it went on")
		}
		if r.calls.Load() != 1 || e.open.Load() || len(e.started) > 0 {
			t.Errorf("asked %d times, open %v", r.calls.Load(), e.open.Load())
		}
	})
}

// TestReopens reports the stream as open exactly while it is: the guard lists the
// sandboxes less often meanwhile.
func TestReopens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		end := make(chan error)
		var up atomic.Bool
		r := &streamer{}
		r.stream = func(_ context.Context, connected, began func()) error {
			if !up.Load() {
				return errors.New("no such socket")
			}
			connected()
			began()
			return <-end
		}
		ctx, cancel := context.WithCancel(t.Context())
		e := newEventStream()
		ended := false
		go func() { e.listen(ctx, r); ended = true }()
		expectStream(t, e, r, "refused", 1, false, 0)
		up.Store(true)
		time.Sleep(reopenPause - time.Millisecond)
		expectStream(t, e, r, "before the pause is over", 1, false, 0)
		time.Sleep(time.Millisecond)
		expectStream(t, e, r, "connected", 2, true, 1)
		<-e.started
		calls := int32(2)
		for _, err := range []error{nil, errors.New("the runtime ended")} {
			end <- err
			expectStream(t, e, r, "the stream ended", calls, false, 0)
			calls++
			time.Sleep(reopenPause)
			expectStream(t, e, r, "connected again", calls, true, 1)
			<-e.started
		}
		cancel()
		end <- context.Canceled
		expectStream(t, e, r, "to end", calls, false, 0)
		if !ended {
			t.Error("it goes on")
		}
	})
}

func expectStream(t *testing.T, e *eventStream, r *streamer, when string, calls int32, open bool, began int) {
	t.Helper()
	synctest.Wait()
	if r.calls.Load() != calls || e.open.Load() != open || len(e.started) != began {
		t.Errorf("%s: asked %d times, open %v, %d events; want %d, %v, %d", when, r.calls.Load(), e.open.Load(), len(e.started), calls, open, began)
	}
}

// TestContextEndsThePause at once.
func TestContextEndsThePause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &streamer{stream: func(context.Context, func(), func()) error { return errors.New("no such socket") }}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		newEventStream().listen(ctx, r)
		if took := time.Since(began); took != time.Second || r.calls.Load() != 1 {
			t.Errorf("it ended after %s and %d calls", took, r.calls.Load())
		}
	})
}
