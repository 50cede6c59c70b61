// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Time limits of a list and of the pods at the beginning of a watch, and how long a
// watch may last beyond the time after which the API server ends it.
const (
	listTimeout = time.Minute
	watchGrace  = 30 * time.Second
)

// Pace of watches. The reflector backs off between failures, by 1 to 60 seconds. It
// does not where the API server, or a proxy, ends each watch after some events.
const (
	watchInterval = 2 * time.Second
	watchBurst    = 5
)

// WatchNodePods keeps a store up to date with the pods of a node until ctx ends.
func (c *Client) WatchNodePods(ctx context.Context, node string, store PodStore) {
	w := newPodWatch(ctx, c.streams, node, store)
	source := &cache.ListWatch{ListWithContextFunc: w.list, WatchFuncWithContext: w.watch}
	// The store is told about errors; the reflector's own log would repeat them.
	silent := klog.Logger{}
	reflector := cache.NewReflectorWithOptions(source, &corev1.Pod{}, w, cache.ReflectorOptions{Name: "pods of the node", Logger: &silent})
	// One of the reflector's pauses does not end with ctx.
	go reflector.RunWithContext(klog.NewContext(ctx, silent))
	<-ctx.Done()
}

// podWatch is what the reflector lists, watches and fills. All of its methods are
// called by the reflector's goroutine, one after the other.
type podWatch struct {
	PodStore
	client   rest.Interface
	ctx      context.Context // of WatchNodePods; the reflector lists without it
	selector string
	pace     *rate.Limiter
	extend   func() // lets the open watch last; nil where it may already
}

func newPodWatch(ctx context.Context, client rest.Interface, node string, store PodStore) *podWatch {
	return &podWatch{
		PodStore: store, client: client, ctx: ctx,
		selector: fields.OneTermEqualSelector("spec.nodeName", node).String(),
		pace:     rate.NewLimiter(rate.Every(watchInterval), watchBurst),
	}
}

// watch implements cache.WatchFuncWithContext.
func (w *podWatch) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if err := w.pace.Wait(ctx); err != nil {
		return nil, err
	}
	options.Watch, options.FieldSelector = true, w.selector
	w.extend = nil
	streaming := options.SendInitialEvents != nil && *options.SendInitialEvents
	lasting := watchGrace
	if options.TimeoutSeconds != nil {
		lasting += time.Duration(*options.TimeoutSeconds) * time.Second
	}
	ctx, cancel := context.WithCancel(ctx)
	limit := lasting
	if streaming {
		limit = listTimeout
	}
	timer := time.AfterFunc(limit, cancel)
	stop := func() { timer.Stop(); cancel() }
	opened, err := w.client.Get().Resource("pods").VersionedParams(&options, metav1.ParameterCodec).MaxRetries(0).Watch(ctx)
	if err != nil {
		stop()
		// An API server that does not stream lists refuses the request as invalid.
		if !streaming || !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
			w.fail(fmt.Errorf("watching the node's pods: %w", err))
		}
		return nil, err
	}
	if streaming {
		w.extend = func() { timer.Reset(lasting) }
	}
	w.WatchStarted()
	return stoppedWatch{opened, stop}, nil
}

// Transformer implements cache.TransformingStore: the pods at the beginning of a watch
// are transformed one by one, before all of them are there.
func (w *podWatch) Transformer() cache.TransformFunc { return w.Transform }

// Replace implements cache.ReflectorStore. The pods at the beginning of a watch, or of
// a list, are complete.
func (w *podWatch) Replace(pods []any, resourceVersion string) error {
	if w.extend != nil {
		w.extend()
		w.extend = nil
	}
	return w.PodStore.Replace(unwrapped(pods), resourceVersion)
}

func (w *podWatch) fail(err error) {
	if w.ctx.Err() == nil {
		w.WatchFailed(err)
	}
}

// stoppedWatch is a watch that releases its context when it is stopped.
type stoppedWatch struct {
	watch.Interface
	stop func()
}

// Stop implements watch.Interface.
func (w stoppedWatch) Stop() {
	w.Interface.Stop()
	w.stop()
}
