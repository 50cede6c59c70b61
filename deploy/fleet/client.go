// SPDX-License-Identifier: Apache-2.0

// Package fleet reads the state of all nodes and of the pods in the mesh, from Nodes, pods, Events, and
// the agents' DaemonSets and Leases. It needs only the verbs get, list and watch, except for
// explanations, traces, traffic and reports, which also execute commands in agents' pods.
package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
)

// Client sends requests to a cluster with the permissions of the person who runs kubectl.
type Client struct {
	access *rest.Config
	scheme *runtime.Scheme
	groups map[schema.GroupVersion]rest.Interface
}

// requestsPerSecond limits the rate of requests for objects of one API group.
const requestsPerSecond = 50

// NewClient returns a Client. It connects when the first request is sent.
func NewClient(access *rest.Config) (*Client, error) {
	c := &Client{access, runtime.NewScheme(), map[schema.GroupVersion]rest.Interface{}}
	kinds := runtime.NewSchemeBuilder(
		corev1.AddToScheme, appsv1.AddToScheme, coordination.AddToScheme, rbacv1.AddToScheme, admissionv1.AddToScheme)
	if err := kinds.AddToScheme(c.scheme); err != nil {
		return nil, fmt.Errorf("making an API client: %w", err)
	}
	for _, group := range c.scheme.PrioritizedVersionsAllGroups() {
		access := rest.CopyConfig(access)
		access.QPS, access.Burst = requestsPerSecond, 2*requestsPerSecond
		access.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
		access.NegotiatedSerializer = serializer.NewCodecFactory(c.scheme).WithoutConversion()
		access.APIPath, access.GroupVersion = "/apis", &group
		if group.Group == "" {
			access.APIPath = "/api"
		}
		client, err := rest.RESTClientFor(access)
		if err != nil {
			return nil, fmt.Errorf("making an API client: %w", err)
		}
		c.groups[group] = client
	}
	return c, nil
}

// of returns the API client for an object's or a list's type, and the name of its resource.
func (c *Client) of(kind runtime.Object) (api rest.Interface, resource string) {
	known, _, err := c.scheme.ObjectKinds(kind)
	if err != nil {
		panic("fleet: " + err.Error()) // can't happen, because NewClient registers all used types
	}
	item := known[0].GroupVersion().WithKind(strings.TrimSuffix(known[0].Kind, "List"))
	plural, _ := meta.UnsafeGuessKindToResource(item)
	return c.groups[item.GroupVersion()], plural.Resource
}

// Request begins a request for objects of a kind. An empty namespace means all namespaces or, for a
// cluster-scoped kind, none.
func (c *Client) Request(verb string, kind runtime.Object, namespace string) *rest.Request {
	api, resource := c.of(kind)
	return api.Verb(verb).NamespaceIfScoped(namespace, namespace != "").Resource(resource)
}

// Get reads an object. Errors: those of the API server.
func (c *Client) Get(ctx context.Context, namespace, name string, into runtime.Object) error {
	_, resource := c.of(into)
	return withRole(c.Request("GET", into, namespace).Name(name).Do(ctx).Into(into), "get", resource, namespace)
}

// GetJSON reads the JSON document at a path of the API server. It serves for documents that are not
// objects of registered types.
func (c *Client) GetJSON(ctx context.Context, path string, into any) error {
	document, err := c.groups[corev1.SchemeGroupVersion].Get().AbsPath(path).DoRaw(ctx)
	if err != nil {
		return err
	}
	return json.Unmarshal(document, into)
}

// pageSize is the largest number of objects in the response to a request for a list.
const pageSize = 500

// Each calls visit with each object that the options select. The type of list determines the kind of the
// objects.
func Each[T runtime.Object](
	ctx context.Context, c *Client, namespace string, list runtime.Object, options metav1.ListOptions, visit func(T),
) error {
	_, resource := c.of(list)
	pages := pager.ListPager{PageSize: pageSize, PageFn: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return c.Request("GET", list, namespace).VersionedParams(&options, metav1.ParameterCodec).Do(ctx).Get()
	}}
	err := pages.EachListItem(ctx, options, func(object runtime.Object) error {
		visit(object.(T))
		return nil
	})
	return withRole(err, "list", resource, namespace)
}

// read reads an object, and returns it. what is the name of the object's kind, for errors.
func read[P runtime.Object](ctx context.Context, c *Client, what, namespace, name string, into P) (none P, err error) {
	if err := c.Get(ctx, namespace, name, into); err != nil {
		return none, fmt.Errorf("reading %s %s/%s: %w", what, namespace, name, err)
	}
	return into, nil
}
