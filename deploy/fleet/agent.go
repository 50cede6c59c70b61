// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
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

// NetConfVariable is the environment variable with the keys of the plugin's entry.
const NetConfVariable = "CAPTURE_CNI_NETCONF"

// NetConf returns the keys of the plugin's entry with which a container was made, as JSON,
// "" for one of a release that had them elsewhere.
func NetConf(installer corev1.Container) string { return Variable(installer, NetConfVariable) }

// Variable returns a variable of a container's environment, "" for one that it does not have.
func Variable(container corev1.Container, name string) string {
	for _, variable := range container.Env {
		if variable.Name == name {
			return strings.ReplaceAll(variable.Value, "$$", "$") // as the kubelet does
		}
	}
	return ""
}

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
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil ||
		pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
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

// observeNode returns what is observed of one node, and its agent, nil for none: as status
// does, it knows agents that end, and those that the scheduler has not placed.
func (c *Client) observeNode(ctx context.Context, namespace, node string) (o *observed, agent *Agent, err error) {
	o = newObserved(namespace)
	if o.release, err = c.release(ctx, namespace); err != nil {
		return o, nil, err
	}
	for _, scheduled := range []string{node, ""} {
		there := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", scheduled).String()}
		if err := Each(ctx, c, namespace, &corev1.PodList{}, there, func(pod *corev1.Pod) { o.add(pod) }); err != nil {
			return o, nil, fmt.Errorf("listing the agents: %w", err)
		}
	}
	agents, _ := o.sortPods()
	return o, agents[node], nil
}
