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

// Agent is the pod of a node's agent. This package executes commands only in pods that a DaemonSet of
// the release owns.
type Agent struct {
	namespace, name, node string

	owner      types.UID // the agent's DaemonSet
	generation string    // identifies the DaemonSet's specification from which the agent was created
	created    time.Time
	ending     bool
	fault      *fault // nil if the agent is ready
	guarded    bool   // the agent has a guard
}

// Containers of the agent's pod.
const (
	InstallerContainer = "installer"
	GuardContainer     = "guard"
)

// NetConfVariable is the environment variable with the keys of the plugin's entry.
const NetConfVariable = "CAPTURE_CNI_NETCONF"

// NetConf returns the keys of the plugin's entry, as JSON, from the variable NetConfVariable of an agent's
// container. It returns "" if the container lacks the variable.
func NetConf(installer corev1.Container) string { return Variable(installer, NetConfVariable) }

// Variable returns the value of a container's environment variable, or "" if the container has no such
// variable.
func Variable(container corev1.Container, name string) string {
	for _, variable := range container.Env {
		if variable.Name == name {
			return strings.ReplaceAll(variable.Value, "$$", "$") // as the kubelet does
		}
	}
	return ""
}

const serviceAccount = "capture-cni-node"

// templateGeneration is the label with which the controller of DaemonSets identifies the specification
// of a pod.
const templateGeneration = "pod-template-generation"

// asAgent returns the Agent of a pod, or nil if the pod lacks the agents' service account or a
// controller.
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

// intendedNode returns the node for which the controller of DaemonSets created a pod, from the pod's
// affinity, or "".
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

// observeNode reads the release and the agents of one node, and returns the node's agent, or nil. It
// also finds agents that are being deleted, and agents that are not scheduled yet.
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
