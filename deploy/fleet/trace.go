// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"

	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/install/report"
)

// Trace returns the rule that decides about a packet of a pod, as the guard on the pod's node reports
// it. flags describe the packet, in the form of the flags of capture-cni-node explain.
func (x Explainer) Trace(ctx context.Context, namespace, name string, flags []string) (report.Trace, error) {
	pod, err := read(ctx, x.Client, "pod", namespace, name, &corev1.Pod{})
	if err != nil {
		return report.Trace{}, err
	}
	const otherwise = ": trace its manifest with capture-cni-node render --pod FILE --to"
	agent, err := x.guardOf(ctx, pod, otherwise)
	if err != nil {
		return report.Trace{}, fmt.Errorf("tracing a packet of pod %s/%s: %w", namespace, name, err)
	}
	var traced report.Trace
	asked := append([]string{"explain", "--output=json", namespace + "/" + name}, flags...)
	if err := x.ask(ctx, *agent, GuardContainer, &traced, asked...); err != nil {
		lease, _ := read(ctx, x.Client, "Lease", x.Namespace, pod.Spec.NodeName, &coordination.Lease{}) // only the version is needed
		node := newObserved(x.Namespace).node(pod.Spec.NodeName, agent, lease)
		return traced, x.withVersions(err, node.Version)
	}
	return traced, nil
}

// guardOf returns the agent on a pod's node. It returns an error if the pod has no node or is in no mesh,
// or if the node has no agent with a guard. The error about an agent without a guard ends with
// otherwise, the next step.
func (x Explainer) guardOf(ctx context.Context, pod *corev1.Pod, otherwise string) (*Agent, error) {
	if pod.Spec.NodeName == "" {
		return nil, errors.New("it has no node yet: kubectl capture-cni explain says why")
	}
	o, agent, err := x.Client.observeNode(ctx, x.Namespace, pod.Spec.NodeName)
	switch {
	case err != nil:
		return nil, err
	case !inMesh(pod, o.release.meshes()):
		_, cause := whyNotInMesh(pod)
		return nil, fmt.Errorf("no rule concerns it: %s", cause)
	case agent == nil:
		return nil, fmt.Errorf("no agent of namespace %s runs on its node %s", x.Namespace, pod.Spec.NodeName)
	case !agent.guarded:
		return nil, fmt.Errorf("the agent on its node %s has no guard (guard.enabled, netconf.backend)%s", pod.Spec.NodeName, otherwise)
	}
	return agent, nil
}
