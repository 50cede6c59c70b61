// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// Agent is a node's agent. Only release.agent makes one, so that no command is executed in
// another pod.
type Agent struct {
	namespace, name, node string

	ready   bool
	reason  string // why it is not ready, "" if not known
	guarded bool   // it has a guard
}

// Containers of the agent's pod.
const (
	InstallerContainer = "installer"
	GuardContainer     = "guard"
)

// release is an installation: the DaemonSets in its namespace.
type release struct {
	namespace  string
	daemonSets map[types.UID]bool
}

// serviceAccount is that of the agents.
const serviceAccount = "capture-cni-node"

// release returns the installation in a namespace.
func (c *Client) release(ctx context.Context, namespace string) (release, error) {
	r := release{namespace, map[types.UID]bool{}}
	ours := metav1.ListOptions{LabelSelector: labels.Set{"app.kubernetes.io/name": "capture-cni", "app.kubernetes.io/component": "node"}.String()}
	err := Each(ctx, c, namespace, &appsv1.DaemonSetList{}, ours, func(set *appsv1.DaemonSet) { r.daemonSets[set.UID] = true })
	if err != nil {
		return r, fmt.Errorf("listing the DaemonSets of namespace %s: %w", namespace, withHint(err))
	}
	return r, nil
}

// agent returns a pod as an agent, if a DaemonSet of the release owns it. Its labels prove
// nothing: the author of any pod chooses them.
func (r release) agent(pod *corev1.Pod) (Agent, bool) {
	owner := metav1.GetControllerOf(pod)
	if pod.Namespace != r.namespace || pod.Spec.ServiceAccountName != serviceAccount || owner == nil || !r.daemonSets[owner.UID] {
		return Agent{}, false
	}
	a := Agent{namespace: pod.Namespace, name: pod.Name, node: pod.Spec.NodeName}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			a.ready, a.reason = condition.Status == corev1.ConditionTrue, condition.Message
		}
	}
	for _, status := range pod.Status.ContainerStatuses {
		if waiting := status.State.Waiting; waiting != nil {
			a.reason = "container " + status.Name + ": " + waiting.Reason
		}
	}
	a.guarded = slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == GuardContainer })
	return a, pod.DeletionTimestamp == nil && a.node != ""
}

// agentOn returns the agent on a node, nil for none.
func (c *Client) agentOn(ctx context.Context, namespace, node string) (found *Agent, err error) {
	r, err := c.release(ctx, namespace)
	if err != nil {
		return nil, err
	}
	onNode := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()}
	err = Each(ctx, c, namespace, &corev1.PodList{}, onNode, func(pod *corev1.Pod) {
		if a, ok := r.agent(pod); ok && a.node == node {
			found = &a
		}
	})
	if err != nil {
		return nil, fmt.Errorf("listing the agents: %w", withHint(err))
	}
	return found, nil
}
