// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/install/report"
)

// Traffic contains numbers of connections, by the decisions of the pods' rules.
type Traffic struct {
	Unknown []string         `json:"unknown,omitempty"` // sources that could not be read, with the reasons
	Pods    []report.Traffic `json:"pods"`
}

// PodTraffic returns the traffic of one pod, as the guard on its node counts it.
func (x Explainer) PodTraffic(ctx context.Context, namespace, name string) (t Traffic, err error) {
	pod, err := read(ctx, x.Client, "pod", namespace, name, &corev1.Pod{})
	if err != nil {
		return t, err
	}
	agent, err := x.guardOf(ctx, pod, "")
	if err != nil {
		return t, fmt.Errorf("counting the connections of pod %s/%s: %w", namespace, name, err)
	}
	return t, t.add(ctx, x, *agent, namespace, namespace+"/"+name)
}

// Traffic returns the traffic of the running pods of the mesh in a namespace, or in all namespaces if it
// is empty, the pods with the most exempt connections first.
func (x Explainer) Traffic(ctx context.Context, namespace string) (t Traffic, err error) {
	f, err := Read(ctx, x.Client, x.Namespace)
	if err != nil {
		return t, err
	}
	t = Traffic{Unknown: f.Unknown, Pods: []report.Traffic{}} // not null in JSON
	var group errgroup.Group
	group.SetLimit(reportsAtOnce)
	var mu sync.Mutex
	for _, node := range f.Nodes {
		if node.Meshed == 0 && f.Unknown == nil {
			continue
		}
		group.Go(func() error {
			there, err := Traffic{}, errors.New("no guard runs there")
			if node.agent != nil && node.agent.guarded {
				err = there.add(ctx, x, *node.agent, namespace)
			}
			if err != nil {
				there.Unknown = []string{fmt.Sprintf("node %s: %s", node.Name, x.withVersions(err, node.Version))}
			}
			mu.Lock()
			defer mu.Unlock()
			t.Pods, t.Unknown = append(t.Pods, there.Pods...), append(t.Unknown, there.Unknown...)
			return nil
		})
	}
	_ = group.Wait() // no error
	slices.SortFunc(t.Pods, func(a, b report.Traffic) int {
		return cmp.Or(cmp.Compare(b.Sum("exempt"), a.Sum("exempt")), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return t, nil
}

// add adds the traffic that a guard counts for its node's pods in a namespace, or for one of these pods.
func (t *Traffic) add(ctx context.Context, x Explainer, agent Agent, namespace string, pod ...string) error {
	var answer report.NodeTraffic
	if err := x.ask(ctx, agent, GuardContainer, &answer, append([]string{"traffic"}, pod...)...); err != nil {
		return err
	}
	for _, one := range answer.Pods {
		if namespace != "" && one.Namespace != namespace {
			continue
		}
		t.Pods = append(t.Pods, one)
		if one.Unknown != "" && (one.State != report.Exempt || len(pod) > 0) {
			t.Unknown = append(t.Unknown, fmt.Sprintf("pod %s/%s: %s", one.Namespace, one.Name, one.Unknown))
		}
	}
	return nil
}
