// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"

	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/lookup"
)

// Runtime is the node's container runtime.
type Runtime interface {
	// Sandboxes returns all sandboxes that run, or an error. One call runs at a time.
	Sandboxes(ctx context.Context) ([]cri.Sandbox, error)

	// Runs reports whether a sandbox still runs, in the namespace that it had.
	Runs(ctx context.Context, sandbox cri.Sandbox) (bool, error)

	// HaveExited reports whether a sandbox has containers, and all of them have exited.
	HaveExited(ctx context.Context, sandbox cri.Sandbox) (bool, error)

	// Listen calls connected once the runtime sends events, and then began for
	// each sandbox that starts, until the stream or ctx ends. Errors:
	// cri.ErrNoEvents.
	Listen(ctx context.Context, connected, began func()) error
}

// Pods is the agent, which watches the pods of its node.
type Pods interface {
	// Ask returns a pod, or Unchanged for the pod of the request's digest. Errors:
	// *lookup.Fault; any other means that the agent did not answer.
	Ask(ctx context.Context, request lookup.Request) (lookup.Answer, error)
}

func refOf(s cri.Sandbox) capture.PodRef {
	return capture.PodRef{Namespace: s.Namespace, Name: s.Name, UID: s.UID}
}

// asCreated returns a pod with the labels and annotations of its creation.
func asCreated(answer *lookup.Answer, s cri.Sandbox) capture.Pod {
	return answer.Pod.With(s.Labels, s.Annotations)
}

// hasNetwork reports whether a pod has a network of its own. Until the runtime has said
// where the sandbox is, it may have the node's.
func hasNetwork(s cri.Sandbox) bool {
	return s.NetNS != "" || isolatingRuntime(s.Runtime) != "" || s.NetworkError != nil
}

// withoutMetadata returns a sandbox without labels and annotations, which may have
// 256 KiB and come with each listing.
func withoutMetadata(s cri.Sandbox) cri.Sandbox {
	s.Labels, s.Annotations = nil, nil
	return s
}
