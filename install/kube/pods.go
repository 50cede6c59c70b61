// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// PodStore stores a node's pods. Its methods receive each pod as a *corev1.Pod, or as the object that
// Transform returned for the pod.
type PodStore interface {
	// Transform returns the object to store for a pod of a list, or for an initial pod of a watch.
	Transform(pod any) (runtime.Object, error)
	Add(pod any) error
	Update(pod any) error
	Delete(pod any) error
	// Replace replaces all pods in the store by those of the node. The store is incomplete before the
	// first call.
	Replace(pods []any, resourceVersion string) error
	Resync() error

	// WatchStarted is called when the API server has accepted a watch.
	WatchStarted()
	// WatchFailed is called with the error of a list that failed or had to omit pods, or of a watch that
	// the API server did not accept, but not if the API server can't stream the initial pods.
	WatchFailed(err error)
}

// Pod returns the pod that has this name now, whatever its UID is.
func (c *Client) Pod(ctx context.Context, ref capture.PodRef) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	if err := do(ctx, c.reads.Get().Namespace(ref.Namespace).Resource("pods").Name(ref.Name).MaxRetries(0)).Into(pod); err != nil {
		return nil, fmt.Errorf("reading pod %s: %w", ref, err)
	}
	return pod, nil
}

// Evict evicts the pod with this name and UID. Errors: those of the API server, such as "too many
// requests" if a PodDisruptionBudget protects the pod.
func (c *Client) Evict(ctx context.Context, ref capture.PodRef) error {
	uid := types.UID(ref.UID)
	eviction := &policy.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}},
	}
	request := c.rest.Post().Namespace(ref.Namespace).Resource("pods").Name(ref.Name).SubResource("eviction")
	// Without MaxRetries(0), the client would retry while the API server still processes a
	// PodDisruptionBudget, because the answer then has a Retry-After, and delay the eviction of the next
	// pod.
	if err := do(ctx, request.MaxRetries(0).Body(eviction)).Error(); err != nil {
		return fmt.Errorf("evicting pod %s: %w", ref, err)
	}
	return nil
}
