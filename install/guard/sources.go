// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// Runtime is what the guard asks of the node's container runtime.
type Runtime interface {
	// Sandboxes lists the sandboxes that run; also with an error, all that it
	// could locate.
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
	// Pod returns one pod. podlookup.IsGone tells an error for a pod that the
	// API server does not have.
	Pod(ctx context.Context, ref record.PodRef) (*corev1.Pod, error)
}

func refOf(s cri.Sandbox) record.PodRef {
	return record.PodRef{Namespace: s.Namespace, Name: s.Name, UID: s.UID}
}

// asMade returns a pod as it was when its sandbox was made.
func asMade(now *corev1.Pod, s cri.Sandbox) capture.Pod {
	return capture.PodOf(now).With(s.Labels, s.Annotations)
}

// isMeshed reports whether a pod is in the mesh, as far as its sandbox says it.
func isMeshed(s cri.Sandbox) bool {
	return (s.NetNS != "" || isolatedBy(s.Runtime) != "") && capture.Meshed(s.Annotations)
}

// withoutMetadata leaves out what each listing brings anew; a pod may have 256 KiB
// of annotations.
func withoutMetadata(s cri.Sandbox) cri.Sandbox {
	s.Labels, s.Annotations = nil, nil
	return s
}
