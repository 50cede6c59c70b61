// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"time"

	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/capture-cni/capture-cni/install/nodestate"
)

// DefaultNamespace is where the agents are installed as the documents say.
const DefaultNamespace = "capture-cni"

// observed is what the API server knows.
type observed struct {
	now       time.Time
	namespace string            // of the agents
	agents    map[string]*Agent // by node
	meshed    []meshPod
	leases    map[string]*coordination.Lease // by node
	podsFault error                          // why agents and meshed are not known
}

// Read reads the fleet whose agents are in a namespace. Without the permission to list
// pods it reads the Leases alone.
func Read(ctx context.Context, client *Client, namespace string) (*Fleet, error) {
	o := observed{now: time.Now(), namespace: namespace, agents: map[string]*Agent{}, leases: map[string]*coordination.Lease{}}
	release, err := client.release(ctx, namespace)
	if err != nil {
		return nil, err
	}
	running := metav1.ListOptions{FieldSelector: "status.phase!=Succeeded,status.phase!=Failed"}
	err = Each(ctx, client, metav1.NamespaceAll, &corev1.PodList{}, running, func(pod *corev1.Pod) {
		if agent, ok := release.agent(pod); ok {
			o.agents[agent.node] = &agent
		} else if InMesh(pod) && pod.Spec.NodeName != "" {
			o.meshed = append(o.meshed, newMeshPod(pod))
		}
	})
	if err != nil {
		err = fmt.Errorf("listing the pods of all namespaces: %w", err)
		if !apierrors.IsForbidden(err) {
			return nil, err
		}
		o.podsFault = err
	}
	ofAgents := metav1.ListOptions{LabelSelector: labels.SelectorFromSet(nodestate.Labels()).String()}
	err = Each(ctx, client, namespace, &coordination.LeaseList{}, ofAgents, func(lease *coordination.Lease) { o.leases[lease.Name] = lease })
	if err != nil {
		return nil, fmt.Errorf("listing the Leases of namespace %s: %w", namespace, withHint(err))
	}
	return o.fleet(), nil
}
