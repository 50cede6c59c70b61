// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/capture-cni/capture-cni/config"
)

// DaemonSet is a DaemonSet of the release, with the numbers that its controller reports.
type DaemonSet struct {
	Name        string `json:"name"`
	Observed    bool   `json:"observed"`    // if false, the other numbers belong to an older specification
	Desired     int32  `json:"desired"`     // number of nodes that the DaemonSet selects
	Updated     int32  `json:"updated"`     // agents of the newest specification
	Ready       int32  `json:"ready"`       // agents that are ready
	Unavailable int32  `json:"unavailable"` // agents that are missing or not ready
}

// Good reports whether all agents are ready and have the newest specification.
func (d DaemonSet) Good() bool { return d.Observed && d.Updated >= d.Desired && d.Ready >= d.Desired }

// String describes the progress of the agents.
func (d DaemonSet) String() string {
	if !d.Observed {
		return "the controller has not read the newest specification"
	}
	text := fmt.Sprintf("%d desired, %d updated, %d ready", d.Desired, d.Updated, d.Ready)
	if d.Unavailable > 0 {
		text += fmt.Sprintf(", %d unavailable", d.Unavailable)
	}
	return text
}

func newDaemonSet(set *appsv1.DaemonSet) DaemonSet {
	s := set.Status
	return DaemonSet{
		set.Name, s.ObservedGeneration >= set.Generation,
		s.DesiredNumberScheduled, s.UpdatedNumberScheduled, s.NumberReady, s.NumberUnavailable,
	}
}

// release is an installation, which consists of the DaemonSets in its namespace.
type release struct {
	namespace  string
	daemonSets map[types.UID]*appsv1.DaemonSet
}

// ofRelease selects the release's DaemonSets by their labels.
var ofRelease = metav1.ListOptions{LabelSelector: labels.Set{
	"app.kubernetes.io/name":      "capture-cni",
	"app.kubernetes.io/component": "node",
}.String()}

// meshes returns the meshes that at least one of the DaemonSets enables, or the default if there is no
// DaemonSet.
func (r release) meshes() (on []config.MeshName) {
	for _, set := range r.daemonSets {
		for _, container := range set.Spec.Template.Spec.Containers {
			if container.Name == InstallerContainer {
				input, _ := config.Read([]byte(cmp.Or(NetConf(container), "{}")))
				on = append(on, input.Meshes()...)
			}
		}
	}
	if len(on) == 0 {
		return config.DefaultSettings().Meshes
	}
	slices.Sort(on)
	return slices.Compact(on)
}

// release returns the installation in a namespace.
func (c *Client) release(ctx context.Context, namespace string) (release, error) {
	r := release{namespace, map[types.UID]*appsv1.DaemonSet{}}
	err := Each(ctx, c, namespace, &appsv1.DaemonSetList{}, ofRelease, func(set *appsv1.DaemonSet) { r.daemonSets[set.UID] = set })
	if err != nil {
		return r, fmt.Errorf("listing the DaemonSets of namespace %s: %w", namespace, err)
	}
	return r, nil
}

// owns reports whether a DaemonSet of the release owns an agent. Labels do not prove that, because the
// author of any pod can choose them.
func (r release) owns(a *Agent) bool {
	return a.namespace == r.namespace && r.daemonSets[a.owner] != nil
}

// replaces returns the update strategy by which an agent's pod will be replaced, if the pod is older
// than its DaemonSet's specification. Otherwise it returns "".
func (r release) replaces(a *Agent) appsv1.DaemonSetUpdateStrategyType {
	if a == nil || r.daemonSets[a.owner] == nil {
		return ""
	}
	set := r.daemonSets[a.owner]
	d := newDaemonSet(set)
	isNewest := d.Observed && d.Updated >= d.Desired // also true after a rollback to an older specification
	if isNewest || a.generation == set.Annotations[appsv1.DeprecatedTemplateGeneration] {
		return ""
	}
	return cmp.Or(set.Spec.UpdateStrategy.Type, appsv1.RollingUpdateDaemonSetStrategyType)
}

// leaves returns the name of an agent's DaemonSet if the DaemonSet no longer selects the agent's node,
// so that the controller deletes the agent's pod. Otherwise it returns "".
func (r release) leaves(a *Agent, node *corev1.Node) string {
	if a == nil || node == nil || r.daemonSets[a.owner] == nil {
		return ""
	}
	set := r.daemonSets[a.owner]
	if fits, err := wants(set.Spec.Template.Spec, node); fits || err != nil {
		return ""
	}
	return set.Name
}

// selects returns the name of the DaemonSet that places an agent on a node, or "". Of several
// DaemonSets, it returns the first in the order of their names.
func (r release) selects(node *corev1.Node) (name string) {
	for _, set := range r.daemonSets {
		if places(set.Spec.Template.Spec, node) && (name == "" || set.Name < name) {
			name = set.Name
		}
	}
	return name
}

// addedTolerations contains the tolerations that the controller of DaemonSets adds to each pod that uses its node's
// network.
var addedTolerations = []corev1.Toleration{
	{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
	{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
	{Key: corev1.TaintNodeDiskPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodePIDPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodeNetworkUnavailable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
}

// places reports whether the controller of DaemonSets would create a pod with this specification on a
// node.
func places(pod corev1.PodSpec, node *corev1.Node) bool {
	fits, err := wants(pod, node)
	_, isRefused := scheduling.FindMatchingUntoleratedTaint(
		klog.Background(), node.Spec.Taints, slices.Concat(pod.Tolerations, addedTolerations),
		func(taint *corev1.Taint) bool { return taint.Effect != corev1.TaintEffectPreferNoSchedule }, false)
	return err == nil && fits && !isRefused
}

// wants reports whether a pod's nodeSelector and affinity select a node.
func wants(pod corev1.PodSpec, node *corev1.Node) (bool, error) {
	return nodeaffinity.NewRequiredNodeAffinity(pod.NodeSelector, pod.Affinity).Match(node)
}
