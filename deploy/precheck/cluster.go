// SPDX-License-Identifier: Apache-2.0

// Package precheck looks at a cluster before capture-cni is installed: what stands in
// the way, and which values of the chart fit. It reads by get and list alone.
package precheck

import (
	"context"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"

	"github.com/capture-cni/capture-cni/deploy/fleet"
	"github.com/capture-cni/capture-cni/install/terms"
)

// Cluster is what is known of a cluster.
type Cluster struct {
	Version    string // of the API server
	Nodes      []corev1.Node
	DaemonSets []appsv1.DaemonSet
	Injectors  []corev1.ConfigMap // of istiod, one of each revision
	IstioCNI   *corev1.ConfigMap  // of istio-cni; nil for none
	Cilium     *corev1.ConfigMap  // nil for none
	Felix      *Felix             // nil without Calico
	Namespace  *corev1.Namespace  // of the installation; nil if it does not exist
	Unknown    []error            // why parts of this are not known
}

// Felix is what decides in Calico's FelixConfiguration.
type Felix struct {
	Spec struct {
		BPFEnabled                  bool   `json:"bpfEnabled"`
		BPFConnectTimeLoadBalancing string `json:"bpfConnectTimeLoadBalancing"`
	} `json:"spec"`
}

// reader reads a cluster. Of what it can't read, it keeps the error.
type reader struct {
	core, apps rest.Interface
	cluster    *Cluster
}

// Read reads a cluster. Error: the API server does not answer.
func Read(ctx context.Context, access *rest.Config, namespace string) (*Cluster, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("making an API client: %w", err)
		}
	}
	core, err := fleet.RESTClient(access, scheme, corev1.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	apps, err := fleet.RESTClient(access, scheme, appsv1.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	r := reader{core, apps, &Cluster{}}
	if err := r.readVersion(ctx); err != nil {
		return nil, err
	}
	r.readNodes(ctx)
	r.readMeshes(ctx)
	r.readNetwork(ctx)
	r.cluster.Namespace = get(ctx, r, r.core, "", "namespaces", namespace, &corev1.Namespace{})
	return r.cluster, nil
}

func (r reader) readVersion(ctx context.Context) error {
	answer, err := r.core.Get().AbsPath("/version").DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("reading the API server's version: %w", err)
	}
	var info version.Info
	if err := json.Unmarshal(answer, &info); err != nil {
		return fmt.Errorf("reading the API server's version: %w", err)
	}
	r.cluster.Version = info.GitVersion
	return nil
}

func (r reader) readNodes(ctx context.Context) {
	nodes := &corev1.NodeList{}
	r.note("nodes", r.core.Get().Resource("nodes").Do(ctx).Into(nodes))
	r.cluster.Nodes = nodes.Items
}

// readMeshes reads the other plugins of meshes, and what istiod injects.
func (r reader) readMeshes(ctx context.Context) {
	sets := &appsv1.DaemonSetList{}
	r.note("daemonsets of all namespaces", r.apps.Get().Resource("daemonsets").Do(ctx).Into(sets))
	r.cluster.DaemonSets = sets.Items
	for _, set := range sets.Items {
		if set.Name == terms.IstioCNIDaemonSet {
			r.cluster.IstioCNI = get(ctx, r, r.core, set.Namespace, "configmaps", "istio-cni-config", &corev1.ConfigMap{})
		}
	}
	maps := &corev1.ConfigMapList{}
	ofRevisions := metav1.ListOptions{LabelSelector: "istio.io/rev"}
	r.note("configmaps of istiod", r.core.Get().Resource("configmaps").VersionedParams(&ofRevisions, metav1.ParameterCodec).Do(ctx).Into(maps))
	for _, one := range maps.Items {
		if _, injects := one.Data["values"]; injects {
			r.cluster.Injectors = append(r.cluster.Injectors, one)
		}
	}
}

func (r reader) readNetwork(ctx context.Context) {
	r.cluster.Cilium = get(ctx, r, r.core, "kube-system", "configmaps", "cilium-config", &corev1.ConfigMap{})
	answer, err := r.core.Get().AbsPath("/apis/crd.projectcalico.org/v1/felixconfigurations/default").DoRaw(ctx)
	if apierrors.IsNotFound(err) {
		return
	}
	felix := &Felix{}
	if err == nil {
		err = json.Unmarshal(answer, felix)
	}
	if r.note("Calico's felixconfigurations", err); err == nil {
		r.cluster.Felix = felix
	}
}

// get returns an object, nil if there is none or it can't be read.
func get[P runtime.Object](ctx context.Context, r reader, client rest.Interface, namespace, resource, name string, into P) (none P) {
	err := client.Get().NamespaceIfScoped(namespace, namespace != "").Resource(resource).Name(name).Do(ctx).Into(into)
	if err == nil {
		return into
	}
	if !apierrors.IsNotFound(err) {
		r.note(resource+" "+name, err)
	}
	return none
}

func (r reader) note(what string, err error) {
	if err != nil {
		r.cluster.Unknown = append(r.cluster.Unknown, fmt.Errorf("reading %s: %w", what, err))
	}
}
