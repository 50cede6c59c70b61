// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ErrNoEvents means that the runtime sends no events, or would take them from the
// kubelet.
var ErrNoEvents = errors.New("no CRI events")

// Listen calls connected once the runtime sends events, and then began for each
// sandbox that starts, until the stream or ctx ends. Errors: ErrNoEvents.
func (c *Client) Listen(ctx context.Context, connected, began func()) error {
	version, err := c.Version(ctx)
	if err != nil {
		return err
	}
	if !sendsToAll(version) {
		return fmt.Errorf("%w: %s %s sends each of them to one listener alone", ErrNoEvents, version.Name, version.Version)
	}
	asked := time.Now()
	stream, err := c.runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		return c.failed("asking the runtime for its events", err)
	}
	connected()
	for {
		event, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF) && time.Since(asked) < time.Second: // CRI-O's answer
			return fmt.Errorf("%w: CRI events are disabled in the runtime", ErrNoEvents)
		case err != nil:
			return c.failed("receiving the runtime's events", err)
		case isSandboxStart(event):
			began()
		}
	}
}

func isSandboxStart(event *runtimeapi.ContainerEventResponse) bool {
	return event.ContainerId == event.GetPodSandboxStatus().GetId() && event.ContainerEventType == runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT
}

// sendsToAll reports whether each listener receives all events. Before these
// versions a listener takes them from the kubelet, with which pods would hang:
// https://github.com/containerd/containerd/issues/7318, https://github.com/cri-o/cri-o/issues/6466.
func sendsToAll(runtime Version) bool {
	major, rest, _ := strings.Cut(strings.TrimPrefix(runtime.Version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	x, errMajor := strconv.Atoi(major)
	y, errMinor := strconv.Atoi(minor)
	if errors.Join(errMajor, errMinor) != nil {
		return false
	}
	switch runtime.Name {
	case "containerd":
		return x >= 2
	case "cri-o":
		return x > 1 || y >= 30
	}
	return false
}
