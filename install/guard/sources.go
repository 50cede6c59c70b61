// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"

	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/lookup"
)

// Runtime is the node's container runtime, as the guard needs it.
type Runtime interface {
	// Sandboxes returns all running sandboxes. Two calls must not run at the same time.
	Sandboxes(ctx context.Context) ([]cri.Sandbox, error)

	// Runs reports whether a sandbox still runs with the same network namespace.
	Runs(ctx context.Context, sandbox cri.Sandbox) (bool, error)

	// HaveExited reports whether a sandbox has containers, and all of them have exited.
	HaveExited(ctx context.Context, sandbox cri.Sandbox) (bool, error)

	// Listen calls connected once the request for events is sent, and then began for each sandbox that
	// starts, until the stream or ctx ends. Errors: cri.ErrNoEvents.
	Listen(ctx context.Context, connected, began func()) error
}

// Pods is the agent, which answers requests for pods.
type Pods interface {
	// Ask returns a pod or, for a request with Injected, the UIDs of injected pods. If the pod has not
	// changed since the answer with the request's digest, the answer is only Unchanged. Errors:
	// *lookup.Fault. Any other error means that no usable answer arrived.
	Ask(ctx context.Context, request lookup.Request) (lookup.Answer, error)
}

func refOf(s cri.Sandbox) capture.PodRef {
	return capture.PodRef{Namespace: s.Namespace, Name: s.Name, UID: s.UID}
}

// asCreated returns a pod with the labels and annotations that it had when its sandbox was created.
func asCreated(answer *lookup.Answer, s cri.Sandbox) capture.Pod {
	return answer.Pod.With(s.Labels, s.Annotations)
}

// hasNetwork reports whether a sandbox may have a network of its own. It returns true while the runtime
// has not reported the sandbox's network.
func hasNetwork(s cri.Sandbox) bool {
	return s.NetNS != "" || isolatingRuntime(s.Runtime) != "" || s.NetworkError != nil
}

// withoutMetadata returns a sandbox without labels and annotations, which can have 256 KiB. The guard
// does not keep them, because each listing contains them.
func withoutMetadata(s cri.Sandbox) cri.Sandbox {
	s.Labels, s.Annotations = nil, nil
	return s
}
