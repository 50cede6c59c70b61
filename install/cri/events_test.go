// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// service is a runtime that sends some events, and then ends the stream.
type service struct {
	runtimeapi.RuntimeServiceClient
	version *runtimeapi.VersionResponse
	fault   error // of the version
	events  []*runtimeapi.ContainerEventResponse
	refusal error         // of the stream
	lasts   time.Duration // the stream, before it ends
	end     error         // of the stream
	streams int
}

var errEnd, errRefused = errors.New("the stream ended"), errors.New("no stream")

func (s *service) Version(context.Context, *runtimeapi.VersionRequest, ...grpc.CallOption) (*runtimeapi.VersionResponse, error) {
	return s.version, s.fault
}

func (s *service) GetContainerEvents(context.Context, *runtimeapi.GetEventsRequest, ...grpc.CallOption) (grpc.ServerStreamingClient[runtimeapi.ContainerEventResponse], error) {
	if s.refusal != nil {
		return nil, s.refusal
	}
	s.streams++
	return &stream{service: s}, nil
}

type stream struct {
	grpc.ServerStreamingClient[runtimeapi.ContainerEventResponse]
	*service
	sent int
}

func (s *stream) Recv() (*runtimeapi.ContainerEventResponse, error) {
	if s.sent == len(s.events) {
		time.Sleep(s.lasts)
		return nil, s.end
	}
	s.sent++
	return s.events[s.sent-1], nil
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
		event(started, "sidecar", "a"),
	}
	for _, tt := range []struct {
		runtime, version string
		fault, end, want error
		streams, began   int
		lasts            time.Duration
		refusal          error
	}{
		{"containerd", "v2.1.0", nil, errEnd, errEnd, 1, 2, 0, nil},
		{"containerd", "1.7.2", nil, errEnd, ErrNoEvents, 0, 0, 0, nil},
		{"cri-o", "1.34.1", nil, errEnd, errEnd, 1, 2, 0, nil},
		{"cri-o", "1.34.1", nil, io.EOF, ErrNoEvents, 1, 2, time.Second - 1, nil}, // so it says that events are switched off
		{"cri-o", "1.34.1", nil, io.EOF, io.EOF, 1, 2, time.Second, nil},
		{"cri-o", "1.34.1", nil, nil, errRefused, 0, 0, 0, errRefused},
		{"", "", context.DeadlineExceeded, errEnd, context.DeadlineExceeded, 0, 0, 0, nil},
	} {
		version := &runtimeapi.VersionResponse{RuntimeName: tt.runtime, RuntimeVersion: tt.version}
		s := &service{version: version, fault: tt.fault, events: events, end: tt.end, lasts: tt.lasts, refusal: tt.refusal}
		connected, began := 0, 0
		client := &Client{sockets: []string{"/"}, runtime: s}
		var err error
		synctest.Test(t, func(t *testing.T) { err = client.Listen(t.Context(), func() { connected++ }, func() { began++ }) })
		if !errors.Is(err, tt.want) || connected != tt.streams || s.streams != tt.streams || began != tt.began {
			t.Errorf("%s %q: %v after %d streams, %d times connected, %d sandboxes", tt.runtime, tt.version, err, s.streams, connected, began)
		}
	}
}
