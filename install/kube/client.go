// SPDX-License-Identifier: Apache-2.0

// Package kube makes every request of the agent to the API server. It also does the agent's
// work on single objects there: the node's Lease, the startup taint, and the eviction of pods
// that the guard may not repair. Its client knows a few kinds and no more: a clientset of all
// of them would take more memory than the whole agent.
package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	authentication "k8s.io/api/authentication/v1"
	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/capture-cni/capture-cni/plugin/httplimit"
)

// requestTimeout bounds each request with all of its retries.
const requestTimeout = 10 * time.Second

// do makes a request.
func do(ctx context.Context, request *rest.Request) rest.Result {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return request.Do(ctx)
}

// Client is the API server, with the agent's own rights.
type Client struct {
	rest    rest.Interface // limited to a few requests per second
	reads   rest.Interface // of pods, which pod starts wait for: the callers limit them
	streams rest.Interface // list and watch of a node's pods
}

// New returns a client. It connects with the first request.
func New(access *rest.Config) (*Client, error) {
	core := schema.GroupVersion{Version: "v1"}
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(authentication.SchemeGroupVersion, &authentication.TokenRequest{})
	scheme.AddKnownTypes(coordination.SchemeGroupVersion, &coordination.Lease{})
	scheme.AddKnownTypes(policy.SchemeGroupVersion, &policy.Eviction{})
	scheme.AddKnownTypes(core, &corev1.Event{}, &corev1.Node{}, &corev1.Pod{}, &corev1.PodList{})
	metav1.AddToGroupVersion(scheme, core)
	config := rest.CopyConfig(access)
	config.APIPath, config.GroupVersion = "/api", &core
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()

	limited := rest.CopyConfig(config)
	limited.Wrap(func(next http.RoundTripper) http.RoundTripper { return httplimit.Transport(next, httplimit.MaxObject) })
	reads := rest.CopyConfig(limited)
	reads.QPS = -1
	reads.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	streams := rest.CopyConfig(config)
	streams.Wrap(func(next http.RoundTripper) http.RoundTripper { return httplimit.Transport(next, maxList) })
	streams.QPS = -1    // pages follow one another; watches have a pace of their own
	streams.Timeout = 0 // it would end every watch
	streams.AcceptContentTypes = reads.AcceptContentTypes

	client := &Client{}
	for target, config := range map[*rest.Interface]*rest.Config{&client.rest: limited, &client.reads: reads, &client.streams: streams} {
		made, err := rest.RESTClientFor(config)
		if err != nil {
			return nil, fmt.Errorf("making an API client: %w", err)
		}
		*target = made
	}
	return client, nil
}

// CreateEvent posts an Event.
func (c *Client) CreateEvent(ctx context.Context, event *corev1.Event) error {
	if err := do(ctx, c.rest.Post().Namespace(event.Namespace).Resource("events").Body(event.DeepCopy())).Error(); err != nil {
		return fmt.Errorf("posting an Event: %w", err)
	}
	return nil
}

// RecountEvent replaces count, time and message of an Event that was posted.
// Errors: those of the API server, "not found" for an Event that has expired.
func (c *Client) RecountEvent(ctx context.Context, event *corev1.Event) error {
	patch, err := json.Marshal(map[string]any{"count": event.Count, "lastTimestamp": event.LastTimestamp, "message": event.Message})
	if err == nil {
		err = do(ctx, c.rest.Patch(types.MergePatchType).Namespace(event.Namespace).Resource("events").Name(event.Name).Body(patch)).Error()
	}
	if err != nil {
		return fmt.Errorf("updating an Event: %w", err)
	}
	return nil
}
