// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// Runtime is the node's container runtime.
type Runtime interface {
	// Sandboxes returns the sandboxes that run; with an error, those that it could
	// locate.
	Sandboxes(ctx context.Context) ([]cri.Sandbox, error)

	// Runs reports whether a sandbox still runs, in the namespace that it had.
	Runs(ctx context.Context, sandbox cri.Sandbox) (bool, error)

	// Listen calls connected once the runtime sends events, and then began for
	// each sandbox that starts, until the stream or ctx ends. Errors:
	// cri.ErrNoEvents.
	Listen(ctx context.Context, connected, began func()) error
}

// Pods reads pods from the API server.
type Pods interface {
	// Pod returns one pod. Errors: podlookup.IsGone, for a pod that the API server
	// does not have.
	Pod(ctx context.Context, ref record.PodRef) (*corev1.Pod, error)
}

func refOf(s cri.Sandbox) record.PodRef {
	return record.PodRef{Namespace: s.Namespace, Name: s.Name, UID: s.UID}
}

// asCreated returns a pod with the labels and annotations of its creation.
func asCreated(now *corev1.Pod, s cri.Sandbox) capture.Pod {
	return capture.PodOf(now).With(s.Labels, s.Annotations)
}

// isMeshed reports whether a pod is in the mesh, according to its sandbox.
func isMeshed(s cri.Sandbox) bool {
	return (s.NetNS != "" || isolatingRuntime(s.Runtime) != "") && capture.Meshed(s.Annotations)
}

// withoutMetadata returns a sandbox without labels and annotations, which may have
// 256 KiB and come with each listing.
func withoutMetadata(s cri.Sandbox) cri.Sandbox {
	s.Labels, s.Annotations = nil, nil
	return s
}
