// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// firstLook is the interval at which Watch checks whether each informer has read its list or has failed.
// Later, Watch waits for a change, but at most refreshTime, because a Lease becomes too old without any
// event. Then it waits settleTime, and concludes the state again.
const (
	firstLook   = 100 * time.Millisecond
	settleTime  = time.Second
	refreshTime = 10 * time.Second
)

// Watch calls see with the state of the fleet, and again after a change or refreshTime, until see
// returns true or ctx ends. If the state can't be read, Watch passes the error to see, and tries again.
// Errors: that of ctx.
func Watch(ctx context.Context, client *Client, namespace string, see func(f *Fleet, err error) (done bool)) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	changed := make(chan struct{}, 1)
	var all []*watched
	for _, s := range sources(namespace) {
		w, err := newWatched(client, s, func() {
			select {
			case changed <- struct{}{}:
			default: // another change is already pending
			}
		})
		if err != nil {
			return fmt.Errorf("watching %s: %w", s.what, err)
		}
		running.Go(func() { w.informer.RunWithContext(ctx) })
		all = append(all, w)
	}
	wait := firstLook
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
		f, settled, err := look(all, namespace)
		if !settled {
			continue
		}
		if see(f, err) {
			return nil
		}
		wait = settleTime
		select {
		case <-ctx.Done():
		case <-changed:
		case <-time.After(refreshTime):
		}
	}
}

// look returns the fleet as the informers have read it. settled is true if each informer has read its
// list or has failed.
func look(all []*watched, namespace string) (f *Fleet, settled bool, err error) {
	o := newObserved(namespace)
	for _, w := range all {
		fault := w.fault.Load()
		switch {
		case w.informer.HasSynced():
			for _, object := range w.informer.GetStore().List() {
				o.add(object)
			}
		case fault == nil:
			return nil, false, nil
		case err == nil:
			err = o.miss(w.source, withRole(*fault, "watch", w.resource, w.source.namespace))
		}
	}
	if err != nil {
		return nil, true, err
	}
	return o.fleet(), true, nil
}

// watched is a source that an informer lists and then watches.
type watched struct {
	source   source
	resource string
	informer cache.SharedIndexInformer
	fault    atomic.Pointer[error] // the error of the last failed attempt, or nil
}

// newWatched returns a source whose informer calls changed after each change and each failed attempt.
func newWatched(client *Client, s source, changed func()) (*watched, error) {
	api, resource := client.of(s.list)
	from := cache.NewFilteredListWatchFromClient(api, resource, s.namespace, func(options *metav1.ListOptions) {
		options.LabelSelector, options.FieldSelector = s.options.LabelSelector, s.options.FieldSelector
		if !options.Watch {
			options.ResourceVersion = "" // read the newest state, because the API server's cache can be older than the installation
		}
	})
	informer := cache.NewSharedIndexInformerWithOptions(from, s.item, cache.SharedIndexInformerOptions{})
	w := &watched{source: s, resource: resource, informer: informer}
	failed := func(_ context.Context, _ *cache.Reflector, err error) {
		w.fault.Store(&err)
		changed()
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { changed() },
		UpdateFunc: func(any, any) { changed() },
		DeleteFunc: func(any) { changed() },
	}
	_, err := w.informer.AddEventHandler(handler)
	return w, errors.Join(err, w.informer.SetTransform(reduce), w.informer.SetWatchErrorHandlerWithContext(failed))
}

// reduce is the informers' transform function. It replaces a pod by a seenPod to save memory, because a
// cluster has thousands of pods and most of their fields are not used.
func reduce(object any) (any, error) {
	if pod, ok := object.(*corev1.Pod); ok {
		return newSeenPod(pod), nil
	}
	return object, nil
}
