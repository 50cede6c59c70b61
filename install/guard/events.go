// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
)

// ErrNoEvents is the answer of a runtime that can't be listened to.
var ErrNoEvents = errors.New("the runtime does not tell what happens")

// Listen implements Runtime.
func (c *CRI) Listen(ctx context.Context, connected, began func()) error {
	version, err := c.service.Version(ctx, "")
	if err != nil {
		return fmt.Errorf("asking the runtime for its version: %w", err)
	}
	if !tellsEverybody(version.RuntimeName, version.RuntimeVersion) {
		return fmt.Errorf("%w: %s %s", ErrNoEvents, version.RuntimeName, version.RuntimeVersion)
	}
	events := make(chan *runtimeapi.ContainerEventResponse)
	go func() {
		for event := range events {
			isSandbox := event.ContainerId == event.GetPodSandboxStatus().GetId()
			if isSandbox && event.ContainerEventType == runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT {
				began()
			}
		}
	}()
	defer close(events)
	// The client would log the end of each stream as an error.
	asked := time.Now()
	err = c.service.GetContainerEvents(klog.NewContext(ctx, klog.Logger{}), events, func(runtimeapi.RuntimeService_GetContainerEventsClient) { connected() })
	if errors.Is(err, io.EOF) && time.Since(asked) < time.Second { // so CRI-O says that it was not told to tell
		err = fmt.Errorf("%w: its events are switched off", ErrNoEvents)
	}
	return err
}

// tellsEverybody tells whether each listener hears of all events. Before these
// versions it takes them from the kubelet, with which pods would hang:
// https://github.com/containerd/containerd/issues/7318, https://github.com/cri-o/cri-o/issues/6466.
func tellsEverybody(runtime, version string) bool {
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	x, errMajor := strconv.Atoi(major)
	y, errMinor := strconv.Atoi(minor)
	if errors.Join(errMajor, errMinor) != nil {
		return false
	}
	switch runtime {
	case "containerd":
		return x >= 2
	case "cri-o":
		return x > 1 || y >= 30
	}
	return false
}

// ear hears of new sandboxes.
type ear struct {
	began chan struct{} // one or more have begun since it was last read
	open  atomic.Bool   // began will tell
}

func newEar() *ear { return &ear{began: make(chan struct{}, 1)} }

// listenAgain is the pause after a stream has ended.
const listenAgain = 10 * time.Second

// listen goes on until ctx ends, or nothing can be heard.
func (e *ear) listen(ctx context.Context, runtime Runtime) {
	for ctx.Err() == nil {
		err := runtime.Listen(ctx, func() {
			e.open.Store(true)
			e.hear() // what began before
		}, e.hear)
		e.open.Store(false)
		if errors.Is(err, ErrNoEvents) {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(listenAgain):
		}
	}
}

func (e *ear) hear() {
	select {
	case e.began <- struct{}{}:
	default:
	}
}
