// SPDX-License-Identifier: Apache-2.0

// Package evict has pods made anew that the guard found without capture and
// may not put right in place.
package evict

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/capture-cni/capture-cni/install/metrics"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// Pace of one node's evictions.
const (
	every       = 10 * time.Second
	readEvery   = time.Second // after a pod that was read and not evicted
	again       = time.Minute // for one pod: it takes its time to end, or a PodDisruptionBudget keeps it
	stale       = 10 * time.Second
	queueLength = 256
)

// Evictor evicts pods of this node, one at a time.
type Evictor struct {
	api     api
	node    string
	look    func(context.Context) error
	log     *slog.Logger
	results *prometheus.CounterVec
	queue   chan request
	asked   map[string]time.Time // by the pod's UID
}

// request is a pod that somebody wanted evicted.
type request struct {
	pod record.PodRef
	at  time.Time
}

// Results of an eviction, in its metric.
const (
	done    = "done"
	refused = "refused" // by a PodDisruptionBudget
	denied  = "denied"  // by the agent: see denial
	failed  = "failed"
)

// New evicts pods of one node, and none while look says that something is wrong
// with the node's install: the pod that comes instead would be no better.
func New(access *rest.Config, nodeName string, look func(context.Context) error, registry prometheus.Registerer, log *slog.Logger) (*Evictor, error) {
	if nodeName == "" {
		return nil, errors.New("evicting pods: the agent does not know which pods are its own node's; set --node-name")
	}
	api, err := connect(access)
	if err != nil {
		return nil, err
	}
	return &Evictor{
		api: api, node: nodeName, look: look, log: log, results: newCounter(metrics.NewFactory(registry)),
		queue: make(chan request, queueLength), asked: map[string]time.Time{},
	}, nil
}

// Metrics lists all metrics, in the order of the README's table.
func Metrics() []metrics.Metric { return metrics.Document(newCounter) }

func newCounter(f *metrics.Factory) *prometheus.CounterVec {
	results := f.CounterVec("evictions_total", "evictions of uncaptured pods, by `result` (done, refused by a PodDisruptionBudget, denied by the agent because it may not evict the pod, failed)", "result")
	for _, result := range []string{done, refused, denied, failed} {
		results.WithLabelValues(result)
	}
	return results
}

// Ask has a pod evicted in its turn. Who asks too much is not heard, and may ask
// again.
func (e *Evictor) Ask(pod record.PodRef) {
	select {
	case e.queue <- request{pod, time.Now()}:
	default:
	}
}

// Serve evicts until ctx ends.
func (e *Evictor) Serve(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case r := <-e.queue:
			if e.isDue(r) {
				wait(ctx, e.evict(ctx, r.pod))
			}
		}
	}
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// isDue tells whether the pod is still to go: while that is so, the guard asks
// again and again.
func (e *Evictor) isDue(r request) bool {
	for uid, at := range e.asked {
		if time.Since(at) > again {
			delete(e.asked, uid)
		}
	}
	_, asked := e.asked[r.pod.UID]
	return !asked && time.Since(r.at) <= stale
}

// evict has one pod evicted if it may be, and returns how long the next one has
// to wait.
func (e *Evictor) evict(ctx context.Context, pod record.PodRef) time.Duration {
	log := e.log.With("pod", pod.Namespace+"/"+pod.Name)
	if fault := e.look(ctx); fault != nil {
		log.Info("a pod is not evicted while the node is not as it should be", "error", fault)
		return 0
	}
	e.asked[pod.UID] = time.Now()
	found, err := e.api.read(ctx, pod)
	if err == nil {
		if reason := e.denial(found, pod.UID); reason != "" {
			e.results.WithLabelValues(denied).Inc()
			log.Warn("the agent does not evict the pod", "uid", pod.UID, "reason", reason)
			return readEvery
		}
		err = e.api.evict(ctx, pod)
	}
	switch {
	case err == nil:
		e.results.WithLabelValues(done).Inc()
		log.Info("evicted the pod, which was not captured")
		return every
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err): // it has ended, or is another by now
	case apierrors.HasStatusCause(err, policy.DisruptionBudgetCause):
		e.results.WithLabelValues(refused).Inc()
		log.Info("the pod may not be evicted now", "error", err)
	default:
		e.results.WithLabelValues(failed).Inc()
		log.Warn("the pod was not evicted", "error", err)
	}
	return readEvery
}

// denial says why a pod is not one that this agent may evict, "" if it is. The
// API server lets the agent evict any pod, and a record is only a message.
func (e *Evictor) denial(pod *corev1.Pod, uid string) string {
	owner := metav1.GetControllerOf(pod)
	switch {
	case uid == "" || string(pod.UID) != uid:
		return fmt.Sprintf("the API server has another pod of that name, with UID %q", pod.UID)
	case pod.Spec.NodeName != e.node:
		return fmt.Sprintf("it is on node %q, and this is node %q", pod.Spec.NodeName, e.node)
	case !capture.Meshed(pod.Annotations):
		return "it is not in the mesh: it has no annotation sidecar.istio.io/status"
	case owner == nil || owner.Kind == "Node":
		return "it has no controller that makes another pod in its place"
	}
	return ""
}
