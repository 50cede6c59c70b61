// SPDX-License-Identifier: Apache-2.0

package evict

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/capture-cni/capture-cni/install/kube"
	"github.com/capture-cni/capture-cni/plugin/record"
)

const requestTimeout = 10 * time.Second

// api is the API server as the agent needs it here.
type api struct{ client rest.Interface }

func connect(access *rest.Config) (api, error) {
	client, err := kube.Client(access, func(scheme *runtime.Scheme) {
		scheme.AddKnownTypes(policy.SchemeGroupVersion, &policy.Eviction{})
		scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Pod{})
	})
	return api{client}, err
}

// read returns the pod that has this name now.
func (a api) read(ctx context.Context, pod record.PodRef) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	found := &corev1.Pod{}
	if err := a.client.Get().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).MaxRetries(0).Do(ctx).Into(found); err != nil {
		return nil, fmt.Errorf("reading pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return found, nil
}

// evict ends one pod, and never another of its name. Errors: as the API server
// has them, "too many requests" for a PodDisruptionBudget.
func (a api) evict(ctx context.Context, pod record.PodRef) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	uid := types.UID(pod.UID)
	eviction := &policy.Eviction{
		TypeMeta:      metav1.TypeMeta{Kind: "Eviction", APIVersion: policy.SchemeGroupVersion.String()},
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}},
	}
	request := a.client.Post().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SubResource("eviction")
	// The client would wait by itself for a PodDisruptionBudget to allow it, and so keep the next pod waiting.
	if err := request.MaxRetries(0).Body(eviction).Do(ctx).Error(); err != nil {
		return fmt.Errorf("evicting pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}
