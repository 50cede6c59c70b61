// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/metrics"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// Pace of evictions on one node.
const (
	evictPause  = 10 * time.Second // after an eviction
	readPause   = time.Second      // after an attempt that evicted no pod
	retryAfter  = time.Minute      // until the next attempt to evict the same pod
	maxAge      = 10 * time.Second // of a request; older requests are dropped
	queueLength = 256
)

// Evictor evicts pods of this node, one at a time.
type Evictor struct {
	api       *Client
	node      string
	meshes    []config.MeshName // the meshes whose pods are captured
	ready     func(context.Context) error
	log       *slog.Logger
	results   *prometheus.CounterVec
	queue     chan request
	attempted map[string]time.Time // by the pod's UID
}

type request struct {
	pod capture.PodRef
	at  time.Time
}

// Values of the label result.
const (
	done    = "done"
	refused = "refused" // by a PodDisruptionBudget
	denied  = "denied"  // by the agent; see the method denial
	failed  = "failed"
)

// NewEvictor returns an Evictor of one node's pods. It evicts no pod while ready returns an error,
// because the replacement could be uncaptured, too.
func NewEvictor(
	api *Client, nodeName string, meshes []config.MeshName, ready func(context.Context) error,
	registry prometheus.Registerer, log *slog.Logger,
) (*Evictor, error) {
	if nodeName == "" {
		return nil, errors.New("evicting pods: the agent does not know its node's name; set --node-name")
	}
	return &Evictor{
		api: api, node: nodeName, meshes: meshes, ready: ready, log: log, results: newCounter(metrics.NewFactory(registry)),
		queue: make(chan request, queueLength), attempted: map[string]time.Time{},
	}, nil
}

// EvictorMetrics describes an Evictor's metrics.
func EvictorMetrics() []metrics.Metric { return metrics.Document(newCounter) }

func newCounter(f *metrics.Factory) *prometheus.CounterVec {
	return f.Counters("evictions_total",
		"evictions, by `result` (done, failed, denied by the agent, refused by a PodDisruptionBudget)",
		"result", done, refused, denied, failed)
}

// Request queues a pod for eviction. If the queue is full, Request drops the pod, because the guard
// repeats its requests.
func (e *Evictor) Request(pod capture.PodRef) {
	select {
	case e.queue <- request{pod, time.Now()}:
	default:
	}
}

// Serve evicts queued pods until ctx ends.
func (e *Evictor) Serve(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case r := <-e.queue:
			if !e.isDue(r) {
				continue
			}
			select {
			case <-ctx.Done():
			case <-time.After(e.evict(ctx, r.pod)):
			}
		}
	}
}

// isDue reports whether a request is at most maxAge old, and no eviction of its pod was attempted
// within retryAfter.
func (e *Evictor) isDue(r request) bool {
	maps.DeleteFunc(e.attempted, func(_ string, at time.Time) bool { return time.Since(at) > retryAfter })
	_, attempted := e.attempted[r.pod.UID]
	return !attempted && time.Since(r.at) <= maxAge
}

// evict evicts one pod, if the node is in the desired state and this agent may evict the pod. It
// returns the pause before the next eviction.
func (e *Evictor) evict(ctx context.Context, pod capture.PodRef) time.Duration {
	log := e.log.With("pod", pod.String())
	if err := e.ready(ctx); err != nil {
		log.Info("not evicting the pod: the node is not in the desired state", "error", err)
		return 0
	}
	e.attempted[pod.UID] = time.Now()
	found, err := e.api.Pod(ctx, pod)
	if err == nil && found.DeletionTimestamp == nil {
		if reason := e.denial(found, pod.UID); reason != "" {
			e.results.WithLabelValues(denied).Inc()
			log.Warn("not evicting the pod: the agent may not", "uid", pod.UID, "reason", reason)
			return readPause
		}
		err = e.api.Evict(ctx, pod)
	}
	switch {
	case err == nil && found.DeletionTimestamp != nil, apierrors.IsNotFound(err), apierrors.IsConflict(err): // the pod ends, or has ended
	case err == nil:
		e.results.WithLabelValues(done).Inc()
		log.Info("evicted the pod, whose rules were missing or changed")
		return evictPause
	case apierrors.HasStatusCause(err, policy.DisruptionBudgetCause):
		e.results.WithLabelValues(refused).Inc()
		log.Info("a PodDisruptionBudget refuses the eviction for now", "error", err)
	default:
		e.results.WithLabelValues(failed).Inc()
		log.Warn("evicting the pod failed", "error", err)
	}
	return readPause
}

// denial returns the reason for which this agent may not evict a pod, or "". The agent must check this
// itself, because the API server permits it to evict other nodes' pods, too, and any process with the
// agent's uid can send a request.
func (e *Evictor) denial(pod *corev1.Pod, uid string) string {
	owner := metav1.GetControllerOf(pod)
	switch {
	case uid == "" || string(pod.UID) != uid:
		return fmt.Sprintf("the request is for UID %q, but the pod of that name has UID %q", uid, pod.UID)
	case pod.Spec.NodeName != e.node:
		return fmt.Sprintf("it is on node %q, and this is node %q", pod.Spec.NodeName, e.node)
	case !capture.Meshed(pod.Annotations, e.meshes):
		return "it has no annotation of one of the meshes in netconf.meshes"
	case owner == nil || owner.Kind == "Node":
		return "it has no controller that would replace it"
	}
	return ""
}
