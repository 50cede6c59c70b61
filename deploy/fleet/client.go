// SPDX-License-Identifier: Apache-2.0

// Package fleet reads the state of all nodes and of the pods in the mesh, by get and
// list alone: the agents' DaemonSets and Leases, and the pods.
package fleet

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/capture-cni/capture-cni/install/nodestate"
)

// Client reads a cluster with the permissions of the person who runs kubectl.
type Client struct {
	core, apps, coordination rest.Interface
	scheme                   *runtime.Scheme
}

// requestsPerSecond is not reached by listing: only by many explanations at once.
const requestsPerSecond = 50

// NewClient returns a client. It connects with the first request.
func NewClient(access *rest.Config) (*Client, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, coordination.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("making an API client: %w", err)
		}
	}
	c := &Client{scheme: scheme}
	for group, client := range map[schema.GroupVersion]*rest.Interface{
		corev1.SchemeGroupVersion: &c.core, appsv1.SchemeGroupVersion: &c.apps, coordination.SchemeGroupVersion: &c.coordination,
	} {
		var err error
		if *client, err = RESTClient(access, scheme, group); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// RESTClient returns a client of one API group, with the kinds of a scheme.
func RESTClient(access *rest.Config, scheme *runtime.Scheme, group schema.GroupVersion) (rest.Interface, error) {
	access = rest.CopyConfig(access)
	access.QPS, access.Burst = requestsPerSecond, 2*requestsPerSecond
	access.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	access.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	access.APIPath, access.GroupVersion = "/apis", &group
	if group.Group == "" {
		access.APIPath = "/api"
	}
	client, err := rest.RESTClientFor(access)
	if err != nil {
		return nil, fmt.Errorf("making an API client: %w", err)
	}
	return client, nil
}

// pageSize is the number of objects in one answer of the API server.
const pageSize = 500

// list visits all pages of a list.
func list[L any, P interface {
	*L
	runtime.Object
	metav1.ListInterface
}](ctx context.Context, client rest.Interface, namespace, resource string, options metav1.ListOptions, visit func(P),
) error {
	options.Limit = pageSize
	for {
		page := P(new(L))
		err := client.Get().NamespaceIfScoped(namespace, namespace != "").Resource(resource).VersionedParams(&options, metav1.ParameterCodec).Do(ctx).Into(page)
		if err != nil {
			return err
		}
		visit(page)
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}

// listPods visits all pods that have not ended.
func (c *Client) listPods(ctx context.Context, visit func(*corev1.Pod)) error {
	running := metav1.ListOptions{FieldSelector: "status.phase!=Succeeded,status.phase!=Failed"}
	err := list(ctx, c.core, metav1.NamespaceAll, "pods", running, func(page *corev1.PodList) {
		for i := range page.Items {
			visit(&page.Items[i])
		}
	})
	if err != nil {
		return fmt.Errorf("listing the pods of all namespaces: %w", err)
	}
	return nil
}

// listLeases visits the Leases of the agents in a namespace.
func (c *Client) listLeases(ctx context.Context, namespace string, visit func(*coordination.Lease)) error {
	agents := metav1.ListOptions{LabelSelector: labels.SelectorFromSet(nodestate.Labels()).String()}
	err := list(ctx, c.coordination, namespace, "leases", agents, func(page *coordination.LeaseList) {
		for i := range page.Items {
			visit(&page.Items[i])
		}
	})
	if err != nil {
		return fmt.Errorf("listing the Leases of namespace %s: %w", namespace, withHint(err))
	}
	return nil
}

// pod returns a pod. Errors: those of the API server.
func (c *Client) pod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	if err := c.core.Get().Namespace(namespace).Resource("pods").Name(name).Do(ctx).Into(pod); err != nil {
		return nil, fmt.Errorf("reading pod %s/%s: %w", namespace, name, err)
	}
	return pod, nil
}

// events returns the Events about a pod.
func (c *Client) events(ctx context.Context, namespace, name string) (events []corev1.Event, err error) {
	about := metav1.ListOptions{FieldSelector: "involvedObject.kind=Pod,involvedObject.name=" + name}
	err = list(ctx, c.core, namespace, "events", about, func(page *corev1.EventList) { events = append(events, page.Items...) })
	if err != nil {
		return nil, fmt.Errorf("listing the Events of pod %s/%s: %w", namespace, name, err)
	}
	return events, nil
}

// lease returns the Lease of a node's agent.
func (c *Client) lease(ctx context.Context, namespace, node string) (*coordination.Lease, error) {
	lease := &coordination.Lease{}
	if err := c.coordination.Get().Namespace(namespace).Resource("leases").Name(node).Do(ctx).Into(lease); err != nil {
		return nil, fmt.Errorf("reading Lease %s/%s: %w", namespace, node, err)
	}
	return lease, nil
}
