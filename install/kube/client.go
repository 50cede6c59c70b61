// SPDX-License-Identifier: Apache-2.0

// Package kube sends all requests of the agent to the API server. It also contains the agent's work on
// single objects: the node's Lease, the startup taint, the condition CaptureReady, and evictions that
// the guard requests. Its client knows only a few kinds, because a clientset of all kinds would need more
// memory.
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

// requestTimeout limits a request with its retries, except the lists and watches of a node's pods.
const requestTimeout = 10 * time.Second

func do(ctx context.Context, request *rest.Request) rest.Result {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return request.Do(ctx)
}

// Client sends requests to the API server with the agent's own rights, except in RejectsToken.
type Client struct {
	rest    rest.Interface // limited to a few requests per second
	reads   rest.Interface // for single pods, which an ADD may wait for; not limited, because the callers limit their requests
	streams rest.Interface // for the list and watch of a node's pods

	transport http.RoundTripper // replaces the network in simulations, also for the plugin's token; otherwise nil
}

// New returns a Client. It connects when the first request is sent.
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
	streams.QPS = -1    // pages follow each other, and watches are paced by podWatch
	streams.Timeout = 0 // a timeout would end every watch
	streams.AcceptContentTypes = reads.AcceptContentTypes

	client := &Client{transport: access.Transport}
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

// RecountEvent replaces count, last time and message of a posted Event. Errors: those of the API server,
// such as "not found" for an Event that has expired.
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
