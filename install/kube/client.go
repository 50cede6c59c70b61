// SPDX-License-Identifier: Apache-2.0

// Package kube makes clients of the API server that know a few kinds and no
// more: a clientset of all of them would take more memory than the whole agent.
package kube

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/capture-cni/capture-cni/plugin/httplimit"
)

// Client speaks of the core group's resources, in the kinds that know adds to
// its scheme. It connects to nothing yet.
func Client(access *rest.Config, know func(*runtime.Scheme)) (rest.Interface, error) {
	core := schema.GroupVersion{Version: "v1"}
	scheme := runtime.NewScheme()
	know(scheme)
	metav1.AddToGroupVersion(scheme, core)
	config := rest.CopyConfig(access)
	config.APIPath, config.GroupVersion = "/api", &core
	config.Wrap(httplimit.Transport)
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making an API client: %w", err)
	}
	return client, nil
}
