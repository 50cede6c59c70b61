// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PodOwnedBy returns the name of the newest pod that a controller owns, and prefers pods that are not
// being deleted. It needs no permission to read ReplicaSets, because the name of a Deployment's
// ReplicaSet consists of the Deployment's name and the hash in the pod's labels.
func (c *Client) PodOwnedBy(ctx context.Context, namespace, kind, name string) (string, error) {
	var newest *corev1.Pod
	err := Each(ctx, c, namespace, &corev1.PodList{}, metav1.ListOptions{}, func(pod *corev1.Pod) {
		if isOwnedBy(pod, kind, name) && (newest == nil || isPreferred(pod, newest)) {
			newest = pod
		}
	})
	if err != nil {
		return "", fmt.Errorf("listing the pods of namespace %s: %w", namespace, err)
	}
	if newest == nil {
		return "", fmt.Errorf("no pod of %s %s is in namespace %s", kind, name, namespace)
	}
	return newest.Name, nil
}

func isOwnedBy(pod *corev1.Pod, kind, name string) bool {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return false
	}
	if kind == "Deployment" {
		hash := pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
		return owner.Kind == "ReplicaSet" && hash != "" && owner.Name == name+"-"+hash
	}
	return owner.Kind == kind && owner.Name == name
}

func isPreferred(pod, to *corev1.Pod) bool {
	if ends := pod.DeletionTimestamp != nil; ends != (to.DeletionTimestamp != nil) {
		return !ends
	}
	return to.CreationTimestamp.Before(&pod.CreationTimestamp)
}

// ServiceAddress returns the first address of a Service, and the number of one of its ports. port is the
// name or the number of this port.
func (c *Client) ServiceAddress(ctx context.Context, namespace, name, port string) (address, number string, err error) {
	service := &corev1.Service{}
	if err := c.Get(ctx, namespace, name, service); err != nil {
		return "", "", fmt.Errorf("reading Service %s/%s: %w", namespace, name, err)
	}
	if service.Spec.ClusterIP == "" || service.Spec.ClusterIP == corev1.ClusterIPNone {
		return "", "", fmt.Errorf("there is no address of Service %s/%s itself: trace to one of its pods", namespace, name)
	}
	for _, p := range service.Spec.Ports {
		if number := strconv.Itoa(int(p.Port)); port == number || port == p.Name {
			return service.Spec.ClusterIP, number, nil
		}
	}
	return "", "", fmt.Errorf("no port of Service %s/%s is %q", namespace, name, port)
}
