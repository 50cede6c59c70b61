// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Limits of a list that the API server answers page by page. Ten of the largest pods that
// etcd stores are below maxList. A node runs far fewer pods than maxListed: more can have
// its name, as the kubelet refuses those.
const (
	pageSize  = 10
	maxListed = 2000
)

// list implements cache.ListWithContextFunc. It asks for all pods at once, which the API
// server answers from memory, and for pages, which it reads from etcd, where a response is
// too large. Pods that do not fit are read when they are asked for.
func (w *podWatch) list(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
	ctx, cancel := context.WithTimeout(w.ctx, listTimeout)
	defer cancel()
	options.FieldSelector = w.selector
	kept := &internalversion.List{}
	for {
		page := &corev1.PodList{}
		err := w.client.Get().Resource("pods").VersionedParams(&options, metav1.ParameterCodec).MaxRetries(0).Do(ctx).Into(page)
		_, large := errors.AsType[tooLarge](err)
		switch {
		case large && options.Limit != pageSize:
			kept, options.Continue, options.Limit = &internalversion.List{}, "", pageSize
			options.ResourceVersion, options.ResourceVersionMatch = "", ""
			continue
		case large:
			w.fail(fmt.Errorf("listing the node's pods: ten of them are too large: they, and those after them, are read when they are asked for: %w", err))
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
			w.fail(fmt.Errorf("listing the node's pods: more than %d have its name: the others are read when they are asked for", maxListed))
			return kept, nil
		}
	}
}

// listed is what the store made of a pod of a list, before the next page came.
type listed struct{ object any }

// GetObjectKind implements runtime.Object.
func (listed) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object.
func (l listed) DeepCopyObject() runtime.Object { return l }

// keep adds the pods of a page. One that can't be kept is read when it is asked for.
func (w *podWatch) keep(list *internalversion.List, page *corev1.PodList) {
	for i := range page.Items {
		object, err := w.Transform(&page.Items[i])
		if err != nil {
			w.fail(err)
			continue
		}
		list.Items = append(list.Items, listed{object})
	}
	list.ResourceVersion = page.ResourceVersion
}

// unwrapped returns what the store made of the objects of a list or a watch.
func unwrapped(objects []any) []any {
	for i, object := range objects {
		if l, ok := object.(listed); ok {
			objects[i] = l.object
		}
	}
	return objects
}
