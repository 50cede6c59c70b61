// SPDX-License-Identifier: Apache-2.0

// Package kube makes every request of the agent to the API server. Its client
// knows a few kinds and no more: a clientset of all of them would take more memory
// than the whole agent.
package kube

import (
	"fmt"
	"time"

	authentication "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/capture-cni/capture-cni/plugin/httplimit"
)

// requestTimeout bounds each request with all of its retries.
const requestTimeout = 10 * time.Second

// Client is the API server, with the agent's own rights.
type Client struct{ rest rest.Interface }

// New returns a client. It connects with the first request.
func New(access *rest.Config) (*Client, error) {
	core := schema.GroupVersion{Version: "v1"}
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(authentication.SchemeGroupVersion, &authentication.TokenRequest{})
	scheme.AddKnownTypes(policy.SchemeGroupVersion, &policy.Eviction{})
	scheme.AddKnownTypes(core, &corev1.Event{}, &corev1.Node{}, &corev1.Pod{})
	metav1.AddToGroupVersion(scheme, core)
	config := rest.CopyConfig(access)
	config.APIPath, config.GroupVersion = "/api", &core
	config.Wrap(httplimit.Transport)
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making an API client: %w", err)
	}
	return &Client{client}, nil
}
