// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestTellsEverybody listens to no runtime that would take an event from the
// kubelet for it.
func TestTellsEverybody(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		runtime, version string
		want             bool
	}{
		{"containerd", "1.6.20~ds1", false},
		{"containerd", "1.7.29", false},
		{"containerd", "v1.7.29", false},
		{"containerd", "1.30.0", false},
		{"containerd", "2.0.0", true},
		{"containerd", "2.0.0-rc.1", true},
		{"containerd", "v2.1.4-k3s1", true},
		{"containerd", "10.0.0", true},
		{"containerd", "2", false},
		{"containerd", "", false},
		{"containerd", "v", false},
		{"containerd", "0.0.0+unknown", false},
		{"containerd", "two.zero", false},
		{"containerd", "2.x", false},
		{"containerd", " 2.0.0", false},
		{"cri-o", "1.29.13", false},
		{"cri-o", "1.3.0", false},
		{"cri-o", "1.30.0", true},
		{"cri-o", "v1.30.0", true},
		{"cri-o", "1.34.1-dev", true},
		{"cri-o", "2.0.0", true},
		{"cri-o", "", false},
		{"dockershim", "2.0.0", false},
		{"docker", "28.1.1", false},
		{"Containerd", "2.0.0", false},
		{"", "2.0.0", false},
		{"", "", false},
	} {
		if got := tellsEverybody(tt.runtime, tt.version); got != tt.want {
			t.Errorf("%q %q: %v", tt.runtime, tt.version, got)
		}
	}
}

// service is a CRI connection that tells of some events, and then ends.
type service struct {
	internalapi.RuntimeService
	version *runtimeapi.VersionResponse
	fault   error // of the version
	events  []*runtimeapi.ContainerEventResponse
	end     error // of the stream
	streams int
}

var errEnd = errors.New("the stream ended")

func (s *service) Version(context.Context, string) (*runtimeapi.VersionResponse, error) {
	return s.version, s.fault
}

func (s *service) GetContainerEvents(_ context.Context, events chan *runtimeapi.ContainerEventResponse, connected func(runtimeapi.RuntimeService_GetContainerEventsClient)) error {
	s.streams++
	connected(nil)
	for _, event := range s.events {
		events <- event
	}
	return s.end
}

// TestListen tells of sandboxes that begin, not of their containers or their
// end, and takes no event where it would be missing elsewhere.
func TestListen(t *testing.T) {
	t.Parallel()
	event := func(kind runtimeapi.ContainerEventType, id, sandbox string) *runtimeapi.ContainerEventResponse {
		return &runtimeapi.ContainerEventResponse{ContainerId: id, ContainerEventType: kind, PodSandboxStatus: &runtimeapi.PodSandboxStatus{Id: sandbox}}
	}
	const (
		created = runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT
		started = runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT
		stopped = runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT
		deleted = runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT
	)
	events := []*runtimeapi.ContainerEventResponse{
		event(created, "a", "a"), event(started, "a", "a"), event(created, "app", "a"), event(started, "app", "a"), event(started, "b", "b"),
		event(stopped, "app", "a"), event(stopped, "a", "a"), event(deleted, "a", "a"),
		{ContainerId: "c", ContainerEventType: started},
	}
	for _, tt := range []struct {
		runtime, version string
		fault, end, want error
		streams, began   int
	}{
		{"containerd", "v2.1.0", nil, errEnd, errEnd, 1, 2},
		{"containerd", "1.7.2", nil, errEnd, ErrNoEvents, 0, 0},
		{"cri-o", "1.34.1", nil, errEnd, errEnd, 1, 2},
		{"cri-o", "1.34.1", nil, io.EOF, ErrNoEvents, 1, 2}, // so it says that events are switched off
		{"", "", context.DeadlineExceeded, errEnd, context.DeadlineExceeded, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			version := &runtimeapi.VersionResponse{RuntimeName: tt.runtime, RuntimeVersion: tt.version}
			s := &service{version: version, fault: tt.fault, events: events, end: tt.end}
			connected, began := 0, 0
			err := NewCRI(s).Listen(t.Context(), func() { connected++ }, func() { began++ })
			synctest.Wait()
			if !errors.Is(err, tt.want) || connected != tt.streams || s.streams != tt.streams || began != tt.began {
				t.Errorf("%s %q: %v after %d streams, %d times connected, %d sandboxes", tt.runtime, tt.version, err, s.streams, connected, began)
			}
		})
	}
}

// teller is a Runtime whose streams are what a test makes of them.
type teller struct {
	Runtime
	stream func(ctx context.Context, connected, began func()) error
	calls  atomic.Int32
}

func (r *teller) Listen(ctx context.Context, connected, began func()) error {
	r.calls.Add(1)
	return r.stream(ctx, connected, began)
}

// quietNode is a Runtime with no pods, which counts how often it is asked.
type quietNode struct {
	*teller
	asked atomic.Int32
}

func (n *quietNode) Sandboxes(context.Context) ([]Sandbox, error) {
	n.asked.Add(1)
	return nil, nil
}

// TestPace looks each second for new pods or, where the runtime tells of them,
// less often: but in each round.
func TestPace(t *testing.T) {
	t.Parallel()
	silent := func(context.Context, func(), func()) error { return ErrNoEvents }
	telling := func(ctx context.Context, connected, _ func()) error {
		connected()
		<-ctx.Done()
		return ctx.Err()
	}
	for _, tt := range []struct {
		name   string
		stream func(ctx context.Context, connected, began func()) error
		round  time.Duration
		want   int32 // looks in a minute
	}{
		{"no events", silent, 30 * time.Second, 60},
		{"events", telling, 30 * time.Second, 12},
		{"a short round", telling, 2 * time.Second, 30},
		{"no round at all", telling, 0, 60},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := &quietNode{teller: &teller{stream: tt.stream}}
				g := New(Settings{Round: tt.round}, n, nil, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go g.Run(ctx)
				time.Sleep(10*time.Second + 500*time.Millisecond)
				before := n.asked.Load()
				time.Sleep(time.Minute)
				if got := n.asked.Load() - before; got != tt.want {
					t.Errorf("%d looks in a minute, want %d", got, tt.want)
				}
			})
		})
	}
}

// TestHear keeps one event for who listens later, and waits for nobody.
func TestHear(t *testing.T) {
	t.Parallel()
	e := newEar()
	for range 3 {
		for range 100 {
			e.hear()
		}
		if heard := len(e.began); heard != 1 {
			t.Fatalf("%d events are there", heard)
		}
		<-e.began
		if heard := len(e.began); heard != 0 {
			t.Fatalf("%d events are there once it was read", heard)
		}
	}
}

// TestNothingToHear asks a runtime once that can't be listened to.
func TestNothingToHear(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &teller{stream: func(context.Context, func(), func()) error { return fmt.Errorf("%w: containerd 1.7.29", ErrNoEvents) }}
		e := newEar()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		e.listen(ctx, r)
		if ctx.Err() != nil {
			t.Error("it went on")
		}
		if r.calls.Load() != 1 || e.open.Load() || len(e.began) > 0 {
			t.Errorf("asked %d times, open %v", r.calls.Load(), e.open.Load())
		}
	})
}

// TestListensAgain says that it hears for as long as it does: who relies on it
// looks less often.
func TestListensAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		end := make(chan error)
		var up atomic.Bool
		r := &teller{}
		r.stream = func(_ context.Context, connected, began func()) error {
			if !up.Load() {
				return errors.New("no such socket")
			}
			connected()
			began()
			return <-end
		}
		ctx, cancel := context.WithCancel(t.Context())
		e := newEar()
		ended := false
		go func() { e.listen(ctx, r); ended = true }()
		expectEar(t, e, r, "refused", 1, false, 0)
		up.Store(true)
		time.Sleep(listenAgain - time.Millisecond)
		expectEar(t, e, r, "before the pause is over", 1, false, 0)
		time.Sleep(time.Millisecond)
		expectEar(t, e, r, "connected", 2, true, 1)
		<-e.began
		calls := int32(2)
		for _, err := range []error{nil, errors.New("the runtime ended")} {
			end <- err
			expectEar(t, e, r, "the stream ended", calls, false, 0)
			calls++
			time.Sleep(listenAgain)
			expectEar(t, e, r, "connected again", calls, true, 1)
			<-e.began
		}
		cancel()
		end <- context.Canceled
		expectEar(t, e, r, "to end", calls, false, 0)
		if !ended {
			t.Error("it goes on")
		}
	})
}

func expectEar(t *testing.T, e *ear, r *teller, when string, calls int32, open bool, began int) {
	t.Helper()
	synctest.Wait()
	if r.calls.Load() != calls || e.open.Load() != open || len(e.began) != began {
		t.Errorf("%s: asked %d times, open %v, %d events; want %d, %v, %d", when, r.calls.Load(), e.open.Load(), len(e.began), calls, open, began)
	}
}

// TestEndsWhileItPauses is with its context, at once.
func TestEndsWhileItPauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &teller{stream: func(context.Context, func(), func()) error { return errors.New("no such socket") }}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		newEar().listen(ctx, r)
		if took := time.Since(began); took != time.Second || r.calls.Load() != 1 {
			t.Errorf("it ended after %s and %d calls", took, r.calls.Load())
		}
	})
}
