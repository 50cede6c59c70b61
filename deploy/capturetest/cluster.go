// SPDX-License-Identifier: Apache-2.0

package capturetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/deploy/fleet"
)

// Cluster creates, reads and deletes namespaces, pods and Services.
type Cluster struct {
	core rest.Interface
	poll time.Duration // between two reads of one object
}

// NewCluster returns a client. It connects with the first request.
func NewCluster(access *rest.Config) (*Cluster, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("making an API client: %w", err)
	}
	core, err := fleet.RESTClient(access, scheme, corev1.SchemeGroupVersion)
	return &Cluster{core, time.Second}, err
}

// requestTimeout limits one creation, which Ctrl-C does not interrupt: what it creates
// must be known when it is removed.
const requestTimeout = 10 * time.Second

func create[T interface {
	runtime.Object
	metav1.Object
}](ctx context.Context, c *Cluster, namespace, resource string, object T,
) (T, error) {
	if ctx.Err() != nil {
		return object, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	created := object.DeepCopyObject().(T)
	err := c.core.Post().NamespaceIfScoped(namespace, namespace != "").Resource(resource).Body(object).Do(ctx).Into(created)
	if err != nil {
		return created, fmt.Errorf("creating %s %s: %w", strings.TrimSuffix(resource, "s"), object.GetName(), err)
	}
	return created, nil
}

func (c *Cluster) get(ctx context.Context, namespace, resource, name string, into runtime.Object) error {
	return c.core.Get().NamespaceIfScoped(namespace, namespace != "").Resource(resource).Name(name).Do(ctx).Into(into)
}

func (c *Cluster) list(ctx context.Context, namespace, resource string, into runtime.Object) error {
	options := metav1.ListOptions{LabelSelector: selector}
	return c.core.Get().NamespaceIfScoped(namespace, namespace != "").Resource(resource).VersionedParams(&options, metav1.ParameterCodec).Do(ctx).Into(into)
}

// remove deletes an object, and waits until it is gone. It retries what the API server did
// not refuse.
func (c *Cluster) remove(ctx context.Context, namespace, resource, name string, kind runtime.Object) error {
	for deleted := false; ; {
		var err error
		if !deleted {
			err = c.core.Delete().NamespaceIfScoped(namespace, namespace != "").Resource(resource).Name(name).Do(ctx).Error()
			deleted = err == nil || apierrors.IsConflict(err) // a namespace that is being removed
		}
		if deleted {
			err = c.get(ctx, namespace, resource, name, kind)
		}
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case isRefused(err):
			return err
		}
		if ended := c.sleep(ctx); ended != nil {
			return errors.Join(ended, err)
		}
	}
}

// sleep waits between two reads. Error: ctx has ended.
func (c *Cluster) sleep(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(c.poll):
		return nil
	}
}

// image is a container image and how it is pulled.
type image struct {
	name   string
	policy corev1.PullPolicy
}

// agentImage returns the image of the agent on one of the nodes, or on any other one. The
// nodes have it, so that it is not pulled: no pull Secret is needed in another namespace.
func (c *Cluster) agentImage(ctx context.Context, f *fleet.Fleet, nodes []fleet.Node) (image, error) {
	for _, node := range append(nodes, f.Nodes...) {
		if node.Agent == "" {
			continue
		}
		pod := &corev1.Pod{}
		if err := c.get(ctx, f.Namespace, "pods", node.Agent, pod); err != nil {
			return image{}, fmt.Errorf("reading the agent %s: %w", node.Agent, err)
		}
		for _, container := range pod.Spec.Containers {
			if container.Name != fleet.InstallerContainer {
				continue
			}
			if container.ImagePullPolicy == corev1.PullNever {
				return image{container.Image, corev1.PullNever}, nil
			}
			return image{container.Image, corev1.PullIfNotPresent}, nil
		}
	}
	return image{}, errors.New("finding the agents' image: no agent runs; name one by --image")
}

// settings returns the plugin's configuration, as the chart set it.
func (c *Cluster) settings(ctx context.Context, namespace string) (config.NetConf, error) {
	stored := &corev1.ConfigMap{}
	if err := c.get(ctx, namespace, "configmaps", "capture-cni-node", stored); err != nil {
		return config.NetConf{}, fmt.Errorf("reading ConfigMap %s/capture-cni-node: %w. %s", namespace, err, permissionHint)
	}
	input, err := config.Read([]byte(stored.Data["netconf.json"]))
	if err != nil {
		return config.NetConf{}, fmt.Errorf("reading netconf.json of ConfigMap %s/capture-cni-node: %w", namespace, err)
	}
	settings, _, err := input.NetConf() // the agents report unknown keys
	if err != nil {
		return settings, fmt.Errorf("reading netconf.json of ConfigMap %s/capture-cni-node: %w", namespace, err)
	}
	return settings, nil
}

// permissionHint names the roles for what this package reads and creates.
const permissionHint = "The ClusterRole and the Role capture-cni-operator-test have the permissions (testRole.enabled=true in the chart): bind them"

// isRefused reports whether the API server refused a request: for a permission, a quota, or
// a rule of admission. After other errors, such as a timeout of its store, what was
// requested may have happened.
func isRefused(err error) bool {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) || apierrors.IsTooManyRequests(err) {
		return false
	}
	code := answer.Status().Code
	return 400 <= code && code < 500
}
