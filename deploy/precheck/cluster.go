// SPDX-License-Identifier: Apache-2.0

// Package precheck examines a cluster before capture-cni is installed. It finds obstacles, and chooses
// the chart's values. It needs only the verbs get and list.
package precheck

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"

	"github.com/capture-cni/capture-cni/deploy/fleet"
	"github.com/capture-cni/capture-cni/install/report"
)

// Cluster contains the facts about a cluster.
type Cluster struct {
	Version    string // version of the API server
	Nodes      []corev1.Node
	DaemonSets []appsv1.DaemonSet
	Injectors  []corev1.ConfigMap // of istiod's revisions, in namespaces whose injector a webhook calls
	IstioCNI   *corev1.ConfigMap  // of istio-cni, or nil
	Installed  *Installed         // the installation of capture-cni, or nil
	Cilium     *corev1.ConfigMap  // of Cilium, or nil
	Felix      *Felix             // of Calico, or nil
	Namespace  *corev1.Namespace  // namespace for the installation; nil if it does not exist or is unknown
	Unknown    []error            // why parts of the cluster are unknown
}

// Felix contains the relevant settings of Calico's FelixConfiguration.
type Felix struct {
	Spec struct {
		BPFEnabled                  bool   `json:"bpfEnabled"`
		BPFConnectTimeLoadBalancing string `json:"bpfConnectTimeLoadBalancing"`
	} `json:"spec"`
}

// Read reads the facts about a cluster. Parts that it can't read are in Unknown. It returns an error
// only if it can't read the API server's version.
func Read(ctx context.Context, client *fleet.Client, namespace string) (*Cluster, error) {
	var info version.Info
	if err := client.GetJSON(ctx, "/version", &info); err != nil {
		return nil, fmt.Errorf("reading the API server's version: %w", err)
	}
	c := &Cluster{Version: info.GitVersion}
	c.Nodes = all[*corev1.Node](ctx, c, client, "nodes", &corev1.NodeList{}, metav1.ListOptions{})
	c.readMeshes(ctx, client)
	if c.DaemonSets == nil { // Cilium may run, most likely in this namespace
		c.Cilium = get(ctx, c, client, metav1.NamespaceSystem, "configmaps", "cilium-config", &corev1.ConfigMap{})
	}
	for _, set := range c.running(cilium) {
		c.Cilium = cmp.Or(get(ctx, c, client, set.Namespace, "configmaps", "cilium-config", &corev1.ConfigMap{}), c.Cilium)
	}
	if c.DaemonSets == nil || len(c.running(calico)) > 0 {
		felix := &Felix{}
		err := client.GetJSON(ctx, "/apis/crd.projectcalico.org/v1/felixconfigurations/default", felix)
		c.Felix = found(c, "Calico's felixconfigurations", felix, err)
	}
	c.Namespace = get(ctx, c, client, "", "namespaces", namespace, &corev1.Namespace{})
	c.readInstalled(ctx, client)
	return c, nil
}

// readMeshes reads the DaemonSets, the configuration of istio-cni, and those of istiod's injectors.
func (c *Cluster) readMeshes(ctx context.Context, client *fleet.Client) {
	c.DaemonSets = all[*appsv1.DaemonSet](ctx, c, client, "daemonsets of all namespaces", &appsv1.DaemonSetList{}, metav1.ListOptions{})
	for _, set := range c.running(report.IstioCNI) {
		c.IstioCNI = get(ctx, c, client, set.Namespace, "configmaps", "istio-cni-config", &corev1.ConfigMap{})
	}
	webhooks := all[*admissionv1.MutatingWebhookConfiguration](ctx, c, client, "mutatingwebhookconfigurations",
		&admissionv1.MutatingWebhookConfigurationList{}, metav1.ListOptions{})
	ofRevisions := metav1.ListOptions{LabelSelector: "istio.io/rev"}
	for _, one := range all[*corev1.ConfigMap](ctx, c, client, "configmaps of istiod", &corev1.ConfigMapList{}, ofRevisions) {
		if _, injects := one.Data["values"]; injects && calls(webhooks, one.Namespace) {
			c.Injectors = append(c.Injectors, one)
		}
	}
}

// calls reports whether a webhook of the cluster calls an injector in a namespace. Only a cluster
// administrator can create a webhook's configuration, but anyone can label a ConfigMap, so labels would
// prove nothing.
func calls(webhooks []admissionv1.MutatingWebhookConfiguration, namespace string) bool {
	return slices.ContainsFunc(webhooks, func(configuration admissionv1.MutatingWebhookConfiguration) bool {
		return slices.ContainsFunc(configuration.Webhooks, func(webhook admissionv1.MutatingWebhook) bool {
			service := webhook.ClientConfig.Service
			return service != nil && service.Namespace == namespace && service.Path != nil && strings.HasPrefix(*service.Path, "/inject")
		})
	})
}

// all returns all objects of a kind. If it can't read them completely, it records the reason and
// returns nil.
func all[P interface {
	*T
	runtime.Object
}, T any](ctx context.Context, c *Cluster, client *fleet.Client, what string, list runtime.Object, options metav1.ListOptions) []T {
	objects := []T{}
	err := fleet.Each(ctx, client, "", list, options, func(object P) { objects = append(objects, *object) })
	if c.note(what, err); err != nil {
		return nil
	}
	return objects
}

// get returns an object, or nil if it does not exist or can't be read. It records the reason why it
// can't be read.
func get[P runtime.Object](ctx context.Context, c *Cluster, client *fleet.Client, namespace, resource, name string, into P) P {
	return found(c, resource+" "+name, into, client.Get(ctx, namespace, name, into))
}

// found returns the object that was read, or nil if the object does not exist or the read failed. It
// records the error of a failed read.
func found[P any](c *Cluster, what string, read P, err error) (none P) {
	if err == nil {
		return read
	}
	if !apierrors.IsNotFound(err) {
		c.note(what, err)
	}
	return none
}

// note records the error because of which a part of the cluster is unknown.
func (c *Cluster) note(what string, err error) {
	if err != nil {
		c.Unknown = append(c.Unknown, fmt.Errorf("reading %s: %w", what, err))
	}
}
