// SPDX-License-Identifier: Apache-2.0

package taint

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/capture-cni/capture-cni/install/kube"
)

// api is the API server as the agent needs it here: one Node, and its events.
type api struct {
	client rest.Interface
	node   string
}

const requestTimeout = 10 * time.Second

func connect(access *rest.Config, node string) (api, error) {
	config := rest.CopyConfig(access)
	config.Timeout = requestTimeout
	client, err := kube.Client(config, func(scheme *runtime.Scheme) {
		scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Node{}, &corev1.Event{})
	})
	return api{client, node}, err
}

// read gives the Node, from the API server's cache where a late answer will do.
func (a api) read(ctx context.Context, cached bool) (*corev1.Node, error) {
	request := a.client.Get().Resource("nodes").Name(a.node)
	if cached {
		request.Param("resourceVersion", "0")
	}
	node := &corev1.Node{}
	if err := request.Do(ctx).Into(node); err != nil {
		return nil, fmt.Errorf("reading node %s: %w", a.node, err)
	}
	return node, nil
}

// attempts are how often somebody else may change the taints in between.
const attempts = 5

// remove takes the taint away, and leaves others as they are.
func (a api) remove(ctx context.Context, node *corev1.Node, key string) error {
	for attempt := 1; ; attempt++ {
		patch, err := removal(node.Spec.Taints, key)
		if patch == nil || err != nil {
			return err
		}
		err = a.client.Patch(types.JSONPatchType).Resource("nodes").Name(a.node).Body(patch).Do(ctx).Error()
		if err == nil {
			return nil
		}
		// A test of the patch that fails makes it an invalid one.
		if attempt == attempts || !apierrors.IsInvalid(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("taking taint %s off node %s: %w", key, a.node, err)
		}
		if node, err = a.read(ctx, false); err != nil {
			return err
		}
	}
}

// warn posts an event on the Node.
func (a api) warn(ctx context.Context, node *corev1.Node, message string) error {
	now := metav1.Now()
	event := &corev1.Event{
		TypeMeta:       metav1.TypeMeta{Kind: "Event", APIVersion: "v1"},
		ObjectMeta:     metav1.ObjectMeta{GenerateName: "capture-cni-", Namespace: metav1.NamespaceDefault},
		InvolvedObject: corev1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: a.node, UID: node.UID},
		Type:           corev1.EventTypeWarning, Reason: "CaptureNotReady", Message: message,
		Source:         corev1.EventSource{Component: "capture-cni-node", Host: a.node},
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
	err := a.client.Post().Namespace(event.Namespace).Resource("events").Body(event).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("posting an event on node %s: %w", a.node, err)
	}
	return nil
}
