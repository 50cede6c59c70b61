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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
)

// Turnover creates and deletes pods on every node all the time: pairs of a meshed pod,
// whose rules are read, and one outside the mesh. A pair follows the end of another.
type Turnover struct {
	Namespace
	until Until
	began time.Time

	mu    sync.Mutex
	lives []Life

	stop    context.CancelFunc
	workers sync.WaitGroup
}

// Until is how long each pod of a Turnover lives.
type Until string

// When a pod's rules are read, before it is deleted.
const (
	SandboxRuns Until = "its sandbox runs"
	Ready       Until = "it is ready"
)

// Life is what was seen of one meshed pod.
type Life struct {
	Pod, Node string
	created   time.Time
	deleted   time.Time     // when its deletion was requested
	Took      time.Duration // until its rules were read
	Rules     netfilter.State
	Digest    string // of this plugin's rules, "" without them
	Fault     error  // how its rules differ from those that it asks for; nil if this plugin alone captured it
	// Validations is how many times istio-validation was started, if the pod has it.
	Validations int32
}

// Ours reports whether this plugin alone captured the pod.
func (l Life) Ours() bool { return l.Fault == nil }

// Theirs reports whether another plugin alone captured the pod.
func (l Life) Theirs() bool { return l.Rules.Backend == "" && l.Rules.Foreign != "" }

// StartTurnover goes on until End, or until the test ends, with a number of pairs at once on
// each node.
func StartTurnover(t *testing.T, n Namespace, pairs int, until Until, meshed func(name, node string) *corev1.Pod) *Turnover {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	w := &Turnover{Namespace: n, until: until, began: time.Now(), stop: stop}
	for _, node := range n.suite.Nodes {
		for worker := range pairs {
			w.workers.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					name := fmt.Sprintf("%s-%d-%d", node.Name, worker, i)
					// A pair is finished also after the end.
					err := w.pair(context.WithoutCancel(ctx), node, meshed("meshed-"+name, node.Name), Unmeshed(Server("plain-"+name, node.Name)))
					if err != nil {
						t.Errorf("pods %s: %v", name, err)
						return
					}
				}
			})
		}
	}
	return w
}

func (w *Turnover) pair(ctx context.Context, node *cluster.Node, meshed, plain *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, cluster.Timeout)
	defer cancel()
	life := Life{Pod: meshed.Name, Node: node.Name, created: time.Now()}
	if err := w.TryCreate(ctx, plain, meshed); err != nil {
		return err
	}
	outside, err := w.wait(ctx, node, plain.Name)
	if err != nil {
		return err
	}
	rules, err := ReadRules(outside)
	if err != nil {
		return err
	}
	if rules != (netfilter.State{}) {
		return fmt.Errorf("%s, which is not in the mesh, has the rules %+v", plain.Name, rules)
	}
	sandbox, err := w.wait(ctx, node, meshed.Name)
	if err != nil {
		return err
	}
	life.Took = time.Since(life.created)
	if err := w.read(ctx, &life, sandbox); err != nil {
		return err
	}
	life.deleted = time.Now()
	w.mu.Lock()
	w.lives = append(w.lives, life)
	w.mu.Unlock()
	return w.TryDelete(ctx, meshed.Name, plain.Name)
}

// wait waits until a pod has lived as long as it should. It repeats a listing that fails,
// as on a busy machine.
func (w *Turnover) wait(ctx context.Context, node *cluster.Node, name string) (found cluster.Sandbox, err error) {
	for ; ctx.Err() == nil; time.Sleep(200 * time.Millisecond) {
		if w.until == Ready {
			var pod *corev1.Pod
			if pod, err = w.TryGet(ctx, name); err != nil || !isReady(pod) {
				continue
			}
		}
		if found, err = node.Sandbox(ctx, w.Name, name); err == nil {
			return found, nil
		}
	}
	return found, fmt.Errorf("waiting for %s until %s: %w", name, w.until, errors.Join(ctx.Err(), err))
}

// read reads what is known of a meshed pod.
func (w *Turnover) read(ctx context.Context, life *Life, sandbox cluster.Sandbox) (err error) {
	if life.Rules, err = ReadRules(sandbox); err != nil {
		return err
	}
	if life.Rules == (netfilter.State{}) {
		return fmt.Errorf("%s has started and is not captured", life.Pod)
	}
	if life.Digest, err = digestAt(ctx, sandbox.Path()); err != nil {
		return fmt.Errorf("reading the rules of %s: %w", life.Pod, err)
	}
	injected, err := w.TryGet(ctx, life.Pod)
	if err != nil {
		return err
	}
	life.Validations, life.Fault = validations(injected), CheckCaptured(ctx, sandbox, injected)
	return nil
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

// Lives returns what was seen of all meshed pods up to now.
func (w *Turnover) Lives() []Life {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.lives)
}

// Next waits until a meshed pod that is created from now on has lived on each node, and
// returns the first of each node.
func (w *Turnover) Next(t *testing.T) (first []Life) {
	t.Helper()
	now := time.Now()
	for _, node := range w.suite.Nodes {
		lab.Eventually(t, func() error {
			for _, l := range w.Lives() {
				if l.Node == node.Name && l.created.After(now) {
					first = append(first, l)
					return nil
				}
			}
			return fmt.Errorf("no new meshed pod has lived on %s", node.Name)
		})
	}
	return first
}

// WasEnding reports whether the deletion of a pod had been requested by then; then may be
// rounded down to seconds, as times of Events are.
func (w *Turnover) WasEnding(pod string, then metav1.Time) bool {
	return slices.ContainsFunc(w.Lives(), func(l Life) bool {
		return l.Pod == pod && !then.Time.Before(l.deleted.Truncate(time.Second))
	})
}

// End waits for the last pairs, and logs how many pods there were.
func (w *Turnover) End(t *testing.T) {
	t.Helper()
	w.stop()
	w.workers.Wait()
	took, longest := time.Since(w.began), time.Duration(0)
	for _, l := range w.lives {
		longest = max(longest, l.Took)
	}
	t.Logf("%d pairs of pods in %s, %.1f a minute; the slowest took %s until %s",
		len(w.lives), took.Round(time.Second), float64(len(w.lives))/took.Minutes(), longest.Round(time.Millisecond), w.until)
}
