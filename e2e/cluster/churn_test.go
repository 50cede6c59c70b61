// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
)

// churn has pods come and go on every node: each time one of the mesh, whose
// rules are read once it is ready, and one that is not.
type churn struct {
	space

	mu      sync.Mutex
	lives   []life
	stop    context.CancelFunc
	workers sync.WaitGroup
}

// life is what became of a pod of the mesh.
type life struct {
	node    string
	created time.Time
	took    time.Duration // until it was ready
	rules   netfilter.State
}

// ours and theirs are the two ways to be captured once.
func (l life) ours() bool   { return l.rules.Backend != "" && l.rules.Foreign == "" }
func (l life) theirs() bool { return l.rules.Backend == "" && l.rules.Foreign != "" }

// startChurn goes on until it is stopped, or the test ends.
func startChurn(t *testing.T, s space) *churn {
	ctx, stop := context.WithCancel(t.Context())
	ch := &churn{space: s, stop: stop}
	for _, node := range c.Nodes {
		ch.workers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if err := ch.round(ctx, node.Name, fmt.Sprintf("%s-%d", node.Name, i)); err != nil && ctx.Err() == nil {
					t.Errorf("pods %s: %v", fmt.Sprintf("%s-%d", node.Name, i), err)
				}
			}
		})
	}
	return ch
}

// round is one pair of pods.
func (ch *churn) round(ctx context.Context, node, name string) error {
	meshed, plain := server("meshed-"+name, node), unmeshed(server("plain-"+name, node))
	created := time.Now()
	if err := ch.tryCreate(ctx, plain, meshed); err != nil {
		return err
	}
	rules, err := ch.whenReady(ctx, plain)
	if err == nil && (rules.Backend != "" || rules.Foreign != "") {
		err = fmt.Errorf("%s, which is not in the mesh, holds %+v", plain.Name, rules)
	}
	if err != nil {
		return err
	}
	l := life{node: node, created: created}
	if l.rules, err = ch.whenReady(ctx, meshed); err != nil {
		return err
	}
	l.took = time.Since(created)
	if l.rules == (netfilter.State{}) {
		err = fmt.Errorf("%s is ready and not captured", meshed.Name)
	}
	ch.mu.Lock()
	ch.lives = append(ch.lives, l)
	ch.mu.Unlock()
	_, deleteErr := c.Kubectl(ctx, "", "--namespace", ch.name, "delete", "pod", meshed.Name, plain.Name, "--wait=false")
	return errors.Join(err, deleteErr)
}

func (ch *churn) whenReady(ctx context.Context, pod *corev1.Pod) (netfilter.State, error) {
	_, err := c.Kubectl(ctx, "", "--namespace", ch.name, "wait", "--for=condition=Ready", patience, "pod/"+pod.Name)
	var sandbox cluster.Sandbox
	if err == nil {
		sandbox, err = ch.sandbox(ctx, pod.Name)
	}
	if err != nil {
		return netfilter.State{}, err
	}
	return inspect(sandbox)
}

// lived are all pods of the mesh up to now.
func (ch *churn) lived() []life {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return slices.Clone(ch.lives)
}

// next waits until a pod of the mesh that is created from now on is ready on
// each node, and gives the first of each.
func (ch *churn) next(t *testing.T) (first []life) {
	t.Helper()
	now := time.Now()
	for _, node := range c.Nodes {
		eventually(t, func() error {
			for _, l := range ch.lived() {
				if l.node == node.Name && l.created.After(now) {
					first = append(first, l)
					return nil
				}
			}
			return fmt.Errorf("no pod of the mesh was made ready on %s", node.Name)
		})
	}
	return first
}

// end waits until all pods have gone, and sums up what became of them.
func (ch *churn) end(t *testing.T) {
	t.Helper()
	ch.stop()
	ch.workers.Wait()
	ch.kubectl(t, "", "delete", "pod", "--all", patience)
	ours, longest := 0, time.Duration(0)
	for _, l := range ch.lives {
		if l.ours() {
			ours++
		}
		longest = max(longest, l.took)
	}
	t.Logf("%d pods of the mesh, %d captured by this plugin; the slowest was ready after %s", len(ch.lives), ours, longest.Round(time.Millisecond))
}
