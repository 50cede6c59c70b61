// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capture-cni/capture-cni/install/report"
)

// DefaultNamespace is the namespace in which the guides install the agents.
const DefaultNamespace = "capture-cni"

// source is a list of objects from which the state of the fleet is concluded.
type source struct {
	what      string
	namespace string
	list      runtime.Object // a list of the source's kind
	item      runtime.Object
	options   metav1.ListOptions
	fault     func(*observed) *error // where to record a missing permission; nil if the source is necessary
}

// sources returns all sources of a fleet's state.
func sources(namespace string) []source {
	ofStates := metav1.ListOptions{LabelSelector: labels.SelectorFromSet(report.LeaseLabels()).String()}
	running := metav1.ListOptions{FieldSelector: "status.phase!=Succeeded,status.phase!=Failed"}
	podsFault := func(o *observed) *error { return &o.podsFault }
	nodesFault := func(o *observed) *error { return &o.nodesFault }
	return []source{
		{"the DaemonSets of namespace " + namespace, namespace, &appsv1.DaemonSetList{}, &appsv1.DaemonSet{}, ofRelease, nil},
		{"the Leases of namespace " + namespace, namespace, &coordination.LeaseList{}, &coordination.Lease{}, ofStates, nil},
		{"the pods of all namespaces", metav1.NamespaceAll, &corev1.PodList{}, &corev1.Pod{}, running, podsFault},
		{"the Nodes", metav1.NamespaceNone, &corev1.NodeList{}, &corev1.Node{}, metav1.ListOptions{}, nodesFault},
	}
}

// observed contains the objects that were read from the API server.
type observed struct {
	now     time.Time
	release release
	pods    []*seenPod
	leases  map[string]*coordination.Lease // by node
	nodes   map[string]*corev1.Node

	ending map[string]bool // nodes whose agents are being deleted

	podsFault, nodesFault error // why pods or Nodes could not be read
}

func newObserved(namespace string) *observed {
	return &observed{
		now: time.Now(), release: release{namespace, map[types.UID]*appsv1.DaemonSet{}},
		leases: map[string]*coordination.Lease{}, nodes: map[string]*corev1.Node{},
	}
}

func (o *observed) add(object any) {
	switch object := object.(type) {
	case *appsv1.DaemonSet:
		o.release.daemonSets[object.UID] = object
	case *coordination.Lease:
		o.leases[object.Name] = object
	case *corev1.Pod:
		o.add(newSeenPod(object))
	case *seenPod:
		if object.agent != nil || object.mesh != nil {
			o.pods = append(o.pods, object)
		}
	case *corev1.Node:
		o.nodes[object.Name] = object
	}
}

// miss records that a source could not be read because a permission is missing. It returns the error if
// the source is necessary, or if the error has another cause.
func (o *observed) miss(s source, err error) error {
	err = fmt.Errorf("listing %s: %w", s.what, err)
	if s.fault == nil || !apierrors.IsForbidden(err) {
		return err
	}
	*s.fault(o) = err
	return nil
}

// ReadFailures adds the causes for which pods have not started, from the agents' Events. If all pods
// have started, it reads no Events. If it can't list Events, it adds a note.
func (f *Fleet) ReadFailures(ctx context.Context, client *Client) {
	waiting := map[[2]string]*Pod{} // by namespace and name
	for i, pod := range f.Pods {
		if pod.State == report.NotStarted {
			waiting[[2]string{pod.Namespace, pod.Name}] = &f.Pods[i]
		}
	}
	if len(waiting) == 0 {
		return
	}
	newest := map[*Pod]time.Time{}
	ofFailures := metav1.ListOptions{FieldSelector: "involvedObject.kind=Pod,reason=" + captureFailed}
	err := Each(ctx, client, metav1.NamespaceAll, &corev1.EventList{}, ofFailures, func(event *corev1.Event) {
		pod := waiting[[2]string{event.InvolvedObject.Namespace, event.InvolvedObject.Name}]
		if event.Reason == captureFailed && pod != nil && isAbout(event, pod.uid) && !event.LastTimestamp.Time.Before(newest[pod]) {
			pod.Failure, newest[pod] = event.Message, event.LastTimestamp.Time
		}
	})
	if err != nil {
		f.Notes = append(f.Notes, fmt.Sprintf("why pods do not start is not known: listing the Events of failed ADDs: %s", err))
	}
}

// Read reads the fleet whose agents are in a namespace. Without the permission to list pods or Nodes, it
// reads the other objects, and Fleet.Unknown contains the missing permission.
func Read(ctx context.Context, client *Client, namespace string) (*Fleet, error) {
	o := newObserved(namespace)
	for _, s := range sources(namespace) {
		err := Each(ctx, client, s.namespace, s.list, s.options, func(object runtime.Object) { o.add(object) })
		if err != nil {
			err = o.miss(s, err)
		}
		if err != nil {
			return nil, err
		}
	}
	f := o.fleet()
	f.ReadFailures(ctx, client)
	return f, nil
}
