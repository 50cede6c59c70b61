// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/capture-cni/capture-cni/plugin/httplimit"
)

// listTimeout limits a list, and the time in which a watch must receive the initial pods. The API
// server ends each watch after a time that the client requests. The client ends the watch itself
// watchGrace later.
const (
	listTimeout = time.Minute
	watchGrace  = 30 * time.Second
)

// Pace of new watches, because an API server or a proxy may end each watch after a few events. The
// reflector itself backs off only after failures, by 0.8 to 60 seconds.
const (
	watchInterval = 2 * time.Second
	watchBurst    = 5
)

// WatchNodePods keeps a store up to date with a node's pods, and returns when ctx ends.
func (c *Client) WatchNodePods(ctx context.Context, node string, store PodStore) {
	w := newPodWatch(ctx, c.streams, node, store)
	source := &cache.ListWatch{ListWithContextFunc: w.list, WatchFuncWithContext: w.watch}
	// The reflector's own log would repeat the errors that the store receives.
	silent := klog.Logger{}
	reflector := cache.NewReflectorWithOptions(source, &corev1.Pod{}, w, cache.ReflectorOptions{Name: "pods of the node", Logger: &silent})
	// One pause of the reflector ignores ctx, so WatchNodePods does not wait for the reflector's end.
	go reflector.RunWithContext(klog.NewContext(ctx, silent))
	<-ctx.Done()
}

// podWatch provides the reflector's list, watch and store. The reflector does not call two methods at
// the same time.
type podWatch struct {
	PodStore
	client   rest.Interface
	ctx      context.Context // the context of WatchNodePods
	selector string
	pace     *rate.Limiter
	extend   func() // gives a watch that has received its initial pods more time; nil if no watch waits for them
}

func newPodWatch(ctx context.Context, client rest.Interface, node string, store PodStore) *podWatch {
	return &podWatch{
		PodStore: store, client: client, ctx: ctx,
		selector: fields.OneTermEqualSelector("spec.nodeName", node).String(),
		pace:     rate.NewLimiter(rate.Every(watchInterval), watchBurst),
	}
}

// watch implements cache.WatchFuncWithContext. It limits the pace of watches and the time of each
// watch.
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
		// An API server that can't stream lists rejects such a watch as invalid, and the reflector then
		// lists instead. This is no fault.
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

// Transformer implements cache.TransformingStore. The reflector then transforms each initial pod of a
// watch when it arrives, instead of when all of them have arrived.
func (w *podWatch) Transformer() cache.TransformFunc {
	return func(pod any) (any, error) { return w.Transform(pod) }
}

// Replace implements cache.ReflectorStore. The reflector calls Replace when the reflector has all pods
// of a list, or all initial pods of a watch.
func (w *podWatch) Replace(pods []any, resourceVersion string) error {
	if w.extend != nil {
		w.extend()
		w.extend = nil
	}
	return w.PodStore.Replace(pods, resourceVersion)
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

// Limits of a list. A response can contain 250 pods of 128 KiB each, or a page of the largest pods that
// etcd stores. A node runs far fewer pods than maxListed, but more pods can name the node, because a
// pod that the kubelet has refused still exists.
const (
	maxList   = 32 << 20 // bytes
	pageSize  = 10
	maxListed = 2000
)

// list implements cache.ListWithContextFunc. It first requests all pods at once, which the API server
// usually returns from memory. If this response is too large, list requests pages, which an API server
// before 1.34 reads from etcd. It omits pods beyond the limits. The agent reads such a pod only when it
// is requested.
func (w *podWatch) list(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
	ctx, cancel := context.WithTimeout(w.ctx, listTimeout)
	defer cancel()
	options.FieldSelector = w.selector
	kept := &internalversion.List{}
	for {
		page := &corev1.PodList{}
		err := w.client.Get().Resource("pods").VersionedParams(&options, metav1.ParameterCodec).MaxRetries(0).Do(ctx).Into(page)
		_, large := errors.AsType[httplimit.TooLarge](err)
		switch {
		case large && options.Limit != pageSize:
			kept, options.Continue, options.Limit = &internalversion.List{}, "", pageSize
			options.ResourceVersion, options.ResourceVersionMatch = "", ""
			continue
		case large:
			w.fail(fmt.Errorf("listing the node's pods: ten of them are too large: "+
				"the agent reads them, and the pods after them, only on request: %w", err))
			return kept, nil
		case err != nil:
			w.fail(fmt.Errorf("listing the node's pods: %w", err))
			return nil, err
		}
		w.keep(kept, page)
		options.ResourceVersion, options.ResourceVersionMatch, options.Continue = "", "", page.Continue
		if page.Continue == "" {
			return kept, nil
		}
		if len(kept.Items) >= maxListed {
			w.fail(fmt.Errorf("listing the node's pods: more than %d pods name the node: the agent reads the others only on request", maxListed))
			return kept, nil
		}
	}
}

// keep adds the pods of a page to a list. It omits a pod that Transform refuses. The agent reads such a
// pod only when it is requested.
func (w *podWatch) keep(list *internalversion.List, page *corev1.PodList) {
	for i := range page.Items {
		object, err := w.Transform(&page.Items[i])
		if err != nil {
			w.fail(err)
			continue
		}
		list.Items = append(list.Items, object)
	}
	list.ResourceVersion = page.ResourceVersion
}
