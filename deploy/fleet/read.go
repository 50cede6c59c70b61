// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// DefaultNamespace is where the agents are installed as the documents say.
const DefaultNamespace = "capture-cni"

// observed is what the API server knows.
type observed struct {
	now       time.Time
	namespace string              // of the agents
	agents    map[string]agentPod // by node
	meshed    []meshPod
	leases    map[string]*coordination.Lease // by node
	podsFault error                          // why agents and meshed are not known
}

// Read reads the fleet. namespace is that of the agents; empty: where their pods are.
// Without the permission to list pods it reads the Leases alone.
func Read(ctx context.Context, client *Client, namespace string) (*Fleet, error) {
	o := observed{now: time.Now(), agents: map[string]agentPod{}, leases: map[string]*coordination.Lease{}}
	agents := map[string]map[string]agentPod{} // by namespace
	err := client.listPods(ctx, func(pod *corev1.Pod) {
		switch {
		case IsAgent(pod) && pod.DeletionTimestamp == nil && pod.Spec.NodeName != "":
			if agents[pod.Namespace] == nil {
				agents[pod.Namespace] = map[string]agentPod{}
			}
			agents[pod.Namespace][pod.Spec.NodeName] = newAgentPod(pod)
		case InMesh(pod) && pod.Spec.NodeName != "":
			o.meshed = append(o.meshed, newMeshPod(pod))
		}
	})
	switch {
	case apierrors.IsForbidden(err):
		o.podsFault = err
	case err != nil:
		return nil, err
	}
	if o.namespace, err = agentNamespace(namespace, slices.Sorted(maps.Keys(agents))); err != nil {
		return nil, err
	}
	if pods := agents[o.namespace]; pods != nil {
		o.agents = pods
	}
	err = client.listLeases(ctx, o.namespace, func(lease *coordination.Lease) { o.leases[lease.Name] = lease })
	if apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("%w. %s", err, permissionHint)
	}
	if err != nil {
		return nil, err
	}
	return o.judge(), nil
}

// agentNamespace returns the namespace to read: the one that was asked for, else the one
// in which agents were found.
func agentNamespace(asked string, found []string) (string, error) {
	switch {
	case asked != "":
		return asked, nil
	case len(found) > 1:
		return "", fmt.Errorf("agents run in the namespaces %s: choose one by --agent-namespace", strings.Join(found, ", "))
	case len(found) == 1:
		return found[0], nil
	}
	return DefaultNamespace, nil
}
