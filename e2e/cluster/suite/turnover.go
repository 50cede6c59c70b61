// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/install/cri"
)

// Turnover creates pods on nodes and deletes them as soon as their sandboxes run: pairs of
// a meshed pod and one outside the mesh, each pair after the one before it has ended. It
// needs no kubectl, so that the machine has its time for the pods.
type Turnover struct {
	namespace string
	url       string
	api       *http.Client

	mu      sync.Mutex
	digests map[string]int       // of the meshed pods' rules
	deleted map[string]time.Time // when the deletion of a pod was requested
	pods    int
	began   time.Time

	stop    context.CancelFunc
	workers sync.WaitGroup
}

// pairsAtOnce is how many pairs start on a node at once.
const pairsAtOnce = 2

// StartTurnover starts and ends pods of these nodes until End, or until the test ends.
func StartTurnover(t *testing.T, n Namespace, nodes []*cluster.Node) *Turnover {
	t.Helper()
	access, err := clientcmd.BuildConfigFromFlags("", n.suite.Kubeconfig())
	Check(t, err)
	client, err := rest.HTTPClientFor(access)
	Check(t, err)
	ctx, stop := context.WithCancel(t.Context())
	turnover := &Turnover{
		namespace: n.Name, url: access.Host + "/api/v1/namespaces/" + n.Name + "/pods", api: client,
		digests: map[string]int{}, deleted: map[string]time.Time{}, began: time.Now(), stop: stop,
	}
	for _, node := range nodes {
		for worker := range pairsAtOnce {
			turnover.workers.Go(func() {
				if err := turnover.run(ctx, node, fmt.Sprintf("%s-%d", node.Name, worker)); err != nil {
					t.Errorf("pods of %s: %v", node.Name, err)
				}
			})
		}
	}
	return turnover
}

// run starts pairs until ctx ends.
func (w *Turnover) run(ctx context.Context, node *cluster.Node, name string) error {
	client, err := cri.New(node.Socket())
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	runtime := cri.NewLocator(client)
	for i := 0; ctx.Err() == nil; i++ {
		meshed, plain := DualStack(Server(fmt.Sprintf("meshed-%s-%d", name, i), node.Name)), Unmeshed(Server(fmt.Sprintf("plain-%s-%d", name, i), node.Name))
		// A pair is finished also after the end.
		if err := w.pair(context.WithoutCancel(ctx), node, runtime, meshed, plain); err != nil {
			return err
		}
	}
	return nil
}

func (w *Turnover) pair(ctx context.Context, node *cluster.Node, runtime *cri.Locator, meshed, plain *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, cluster.Timeout)
	defer cancel()
	for _, pod := range []*corev1.Pod{meshed, plain} {
		if err := w.send(ctx, http.MethodPost, w.url, pod); err != nil {
			return err
		}
	}
	for _, pod := range []*corev1.Pod{meshed, plain} {
		path, err := w.waitSandbox(ctx, runtime, pod.Name)
		if err != nil {
			return err
		}
		digest, err := digestAt(ctx, node.Path(path))
		if err != nil {
			return fmt.Errorf("reading the rules of %s: %w", pod.Name, err)
		}
		if captured := digest != ""; captured != (pod == meshed) {
			return fmt.Errorf("%s is captured: %v", pod.Name, captured)
		}
		w.count(pod.Name, digest)
		if err := w.send(ctx, http.MethodDelete, w.url+"/"+pod.Name, nil); err != nil {
			return err
		}
	}
	return errors.Join(w.waitGone(ctx, meshed.Name), w.waitGone(ctx, plain.Name))
}

// waitGone waits until the kubelet has ended a pod: pods that end must not pile up on a
// slow machine.
func (w *Turnover) waitGone(ctx context.Context, pod string) error {
	for ; ctx.Err() == nil; time.Sleep(200 * time.Millisecond) {
		err := w.send(ctx, http.MethodGet, w.url+"/"+pod, nil)
		if errors.Is(err, errNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return fmt.Errorf("waiting for the end of %s: %w", pod, ctx.Err())
}

// count counts a pod that is about to be deleted.
func (w *Turnover) count(pod, digest string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pods++
	w.deleted[pod] = time.Now()
	if digest != "" {
		w.digests[digest]++
	}
}

// waitSandbox waits until a pod's sandbox runs, and returns the path of its network
// namespace on the node. It repeats a listing that fails, as on a busy machine.
func (w *Turnover) waitSandbox(ctx context.Context, runtime *cri.Locator, pod string) (path string, err error) {
	for ; ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		var sandboxes []cri.Sandbox
		sandboxes, err = runtime.Sandboxes(ctx)
		for _, found := range sandboxes {
			if found.Namespace == w.namespace && found.Name == pod && found.NetNS != "" {
				return found.NetNS, nil
			}
		}
	}
	return "", fmt.Errorf("waiting for the sandbox of %s: %w", pod, errors.Join(ctx.Err(), err))
}

var errNotFound = errors.New("not found")

// send sends a request to the API server. Errors: errNotFound.
func (w *Turnover) send(ctx context.Context, method, url string, pod *corev1.Pod) error {
	var body bytes.Buffer
	if pod != nil {
		if err := json.NewEncoder(&body).Encode(pod); err != nil {
			return err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, url, &body)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := w.api.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusNotFound {
		return errNotFound
	}
	if content, err := io.ReadAll(response.Body); err != nil || response.StatusCode >= 300 {
		return errors.Join(fmt.Errorf("%s %s: %s: %s", method, url, response.Status, content), err)
	}
	return nil
}

// Digests returns how many meshed pods had which rules, up to now.
func (w *Turnover) Digests() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.digests)
}

// WasEnding reports whether the deletion of a pod had been requested by then; t may be
// rounded down to seconds, as times of Events are.
func (w *Turnover) WasEnding(pod string, t time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	deleted, requested := w.deleted[pod]
	return requested && !t.Before(deleted.Truncate(time.Second))
}

// End waits for the last pairs, and logs how many pods started in which time.
func (w *Turnover) End(t *testing.T) {
	t.Helper()
	w.stop()
	w.workers.Wait()
	took := time.Since(w.began)
	t.Logf("%d pods in %s, %.1f a second; half of them meshed", w.pods, took.Round(time.Second), float64(w.pods)/took.Seconds())
}
