// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/capture-cni/capture-cni/install/report"
)

// ErrNoEvents means that the runtime sends no events, or that it may send each event to only one client,
// so that the kubelet would miss events.
var ErrNoEvents = errors.New("no CRI events")

// Listen receives the runtime's events until the stream or ctx ends. Once the request is sent, Listen
// calls connected. Then it calls began for each sandbox that starts. Errors: ErrNoEvents.
func (c *Client) Listen(ctx context.Context, connected, began func()) error {
	version, err := c.Version(ctx)
	if err != nil {
		return err
	}
	if !version.SendsToAll() {
		return fmt.Errorf("%w: %s %s may send each event to only one listener", ErrNoEvents, version.Name, version.Version)
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
		case errors.Is(err, io.EOF) && time.Since(asked) < time.Second: // CRI-O ends the stream at once if events are disabled
			return fmt.Errorf("%w: CRI events are disabled in the runtime", ErrNoEvents)
		case err != nil:
			return c.failed("receiving the runtime's events", err)
		case event.ContainerId == event.GetPodSandboxStatus().GetId() &&
			event.ContainerEventType == runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT:
			began()
		}
	}
}

// Version returns the runtime's name and version.
func (c *Client) Version(ctx context.Context) (report.Runtime, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	answer, err := c.runtime.Version(ctx, &runtimeapi.VersionRequest{})
	if err != nil {
		return report.Runtime{}, c.failed("asking the runtime for its version", err)
	}
	return report.Runtime{Name: answer.RuntimeName, Version: answer.RuntimeVersion}, nil
}
