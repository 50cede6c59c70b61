// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
)

// Agent is a node's agent: no command is executed in a pod that the release does not own.
type Agent struct {
	namespace, name, node string

	owner      types.UID // its DaemonSet
	generation string    // of the DaemonSet's specification that it was made of
	created    time.Time
	ending     bool
	fault      *fault // nil while it is ready
	guarded    bool   // it has a guard
}

// Containers of the agent's pod.
const (
	InstallerContainer = "installer"
	GuardContainer     = "guard"
)

// serviceAccount is that of the agents.
const serviceAccount = "capture-cni-node"

// templateGeneration is the label by which the controller of DaemonSets knows what a pod was
// made of.
const templateGeneration = "pod-template-generation"

// asAgent returns a pod as an agent, nil for one that is none.
func asAgent(pod *corev1.Pod) *Agent {
	owner := metav1.GetControllerOf(pod)
	if pod.Spec.ServiceAccountName != serviceAccount || owner == nil {
		return nil
	}
	a := &Agent{
		namespace: pod.Namespace, name: pod.Name, node: cmp.Or(pod.Spec.NodeName, intendedNode(pod)),
		owner: owner.UID, generation: pod.Labels[templateGeneration],
		created: pod.CreationTimestamp.Time, ending: pod.DeletionTimestamp != nil,
		guarded: slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == GuardContainer }),
	}
	a.fault = faultOf(pod)
	return a
}

// intendedNode returns the node for which a DaemonSet made a pod that is not scheduled yet.
func intendedNode(pod *corev1.Pod) string {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil || pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	for _, term := range pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, field := range term.MatchFields {
			if field.Key == metav1.ObjectNameField && len(field.Values) == 1 {
				return field.Values[0]
			}
		}
	}
	return ""
}

// agentOn returns the release, and its agent on a node, nil for none.
func (c *Client) agentOn(ctx context.Context, namespace, node string) (r release, found *Agent, err error) {
	r, err = c.release(ctx, namespace)
	if err != nil {
		return r, nil, err
	}
	onNode := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()}
	err = Each(ctx, c, namespace, &corev1.PodList{}, onNode, func(pod *corev1.Pod) {
		if a := asAgent(pod); a != nil && r.owns(a) && a.node == node && !a.ending {
			found = a
		}
	})
	if err != nil {
		return r, nil, fmt.Errorf("listing the agents: %w", withHint(err))
	}
	return r, found, nil
}
