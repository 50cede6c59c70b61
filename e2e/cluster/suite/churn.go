// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/plugin/netfilter"
)

// Churn creates and deletes pods on every node all the time: in each round a
// meshed one, whose rules are read once it is ready, and an unmeshed one.
type Churn struct {
	Namespace

	mu      sync.Mutex
	lives   []Life
	stop    context.CancelFunc
	workers sync.WaitGroup
}

// Life is what was seen of one meshed pod.
type Life struct {
	Node    string
	created time.Time
	Took    time.Duration // until it was ready
	Rules   netfilter.State
	// Validations is how many times istio-validation was started, if the pod has it.
	Validations int32
	Fault       error // how its rules differ from those that it asks for; nil if this plugin alone captured it
}

// Ours reports whether this plugin alone captured the pod.
func (l Life) Ours() bool { return l.Fault == nil }

// Theirs reports whether another plugin alone captured the pod.
func (l Life) Theirs() bool { return l.Rules.Backend == "" && l.Rules.Foreign != "" }

// StartChurn goes on until End, or until the test ends.
func StartChurn(t *testing.T, n Namespace) *Churn {
	ctx, stop := context.WithCancel(t.Context())
	ch := &Churn{Namespace: n, stop: stop}
	for _, node := range n.suite.Nodes {
		ch.workers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				name := fmt.Sprintf("%s-%d", node.Name, i)
				if err := ch.round(ctx, node.Name, name); err != nil && ctx.Err() == nil {
					t.Errorf("pods %s: %v", name, err)
				}
			}
		})
	}
	return ch
}

// round is one pair of pods.
func (ch *Churn) round(ctx context.Context, node, name string) error {
	meshed, plain := Server("meshed-"+name, node), Unmeshed(Server("plain-"+name, node))
	created := time.Now()
	if err := ch.TryCreate(ctx, plain, meshed); err != nil {
		return err
	}
	rules, err := ch.rulesWhenReady(ctx, plain)
	if err == nil && (rules.Backend != "" || rules.Foreign != "") {
		err = fmt.Errorf("%s, which is not in the mesh, has the rules %+v", plain.Name, rules)
	}
	if err != nil {
		return err
	}
	l := Life{Node: node, created: created}
	if l.Rules, err = ch.rulesWhenReady(ctx, meshed); err != nil {
		return err
	}
	l.Took = time.Since(created)
	injected, err := ch.TryGet(ctx, meshed.Name)
	if err != nil {
		return err
	}
	l.Validations, l.Fault = validations(injected), ch.CheckCaptured(ctx, injected)
	if l.Rules == (netfilter.State{}) {
		err = fmt.Errorf("%s is ready and not captured", meshed.Name)
	}
	ch.mu.Lock()
	ch.lives = append(ch.lives, l)
	ch.mu.Unlock()
	_, deleteErr := ch.suite.Kubectl(ctx, "", "--namespace", ch.Name, "delete", "pod", meshed.Name, plain.Name, "--wait=false")
	return errors.Join(err, deleteErr)
}

// validations returns how many times Istio's validation of a ready pod was started.
func validations(pod *corev1.Pod) int32 {
	for _, status := range pod.Status.InitContainerStatuses {
		if status.Name == "istio-validation" {
			return status.RestartCount + 1
		}
	}
	return 0
}

func (ch *Churn) rulesWhenReady(ctx context.Context, pod *corev1.Pod) (netfilter.State, error) {
	if _, err := ch.suite.Kubectl(ctx, "", "--namespace", ch.Name, "wait", "--for=condition=Ready", KubectlTimeout, "pod/"+pod.Name); err != nil {
		return netfilter.State{}, err
	}
	sandbox, err := ch.Sandbox(ctx, pod.Name)
	if err != nil {
		return netfilter.State{}, err
	}
	return ReadRules(sandbox)
}

// Lives returns what was seen of all meshed pods up to now.
func (ch *Churn) Lives() []Life {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return slices.Clone(ch.lives)
}

// Next waits until a meshed pod that is created from now on is ready on each
// node, and returns the first of each node.
func (ch *Churn) Next(t *testing.T) (first []Life) {
	t.Helper()
	now := time.Now()
	for _, node := range ch.suite.Nodes {
		Eventually(t, func() error {
			for _, l := range ch.Lives() {
				if l.Node == node.Name && l.created.After(now) {
					first = append(first, l)
					return nil
				}
			}
			return fmt.Errorf("no new meshed pod is ready on %s", node.Name)
		})
	}
	return first
}

// End waits until all pods have ended, and logs a summary.
func (ch *Churn) End(t *testing.T) {
	t.Helper()
	ch.stop()
	ch.workers.Wait()
	ch.Kubectl(t, "", "delete", "pod", "--all", KubectlTimeout)
	ours, longest := 0, time.Duration(0)
	for _, l := range ch.lives {
		if l.Ours() {
			ours++
		}
		longest = max(longest, l.Took)
	}
	t.Logf("%d meshed pods, %d captured by this plugin; the slowest was ready after %s", len(ch.lives), ours, longest.Round(time.Millisecond))
}
