// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/capture-cni-lookup/apiclient"
	"github.com/capture-cni/capture-cni/plugin/lookup"
)

// podReader reads from the API server the pod that has a name now, whatever the pod's UID is.
type podReader interface {
	Pod(ctx context.Context, ref capture.PodRef) (*corev1.Pod, error)
}

// answers answers requests from the cache or, if the cache lacks the pod, from the API server. If the
// agent knows its node, a request for another node's pod must contain the pod's UID, and no answer with
// an error contains that UID. So a process that reaches the socket can't read such a pod by its name.
type answers struct {
	cache   *podCache
	api     podReader
	metrics *podMetrics
	log     *slog.Logger
	node    string // the agent's node, or "" if it is unknown
	reads   singleflight.Group
}

func (a *answers) answer(ctx context.Context, request lookup.Request) []byte {
	switch {
	case request.Version != capture.PodVersion: // such a program reads only the answer's version
		return a.encode(sourceFault, lookup.Answer{})
	case request.Pod.Name == "":
		return a.pong(request)
	case request.Pod.UID != "":
		if found, ok := a.cache.find(request.Pod.String(), request.Pod.UID); ok {
			return a.send(sourceWatch, found, request)
		}
	}
	found, err := a.read(ctx, request.Pod)
	if err != nil {
		return a.fault(err, request.Pod)
	}
	if err := apiclient.CheckUID(request.Pod, found.uid); err != nil {
		return a.fault(err, request.Pod)
	}
	return a.send(sourceRead, found, request)
}

// pong answers a request that names no pod. The answer contains a fault if the agent has not read its
// node's pods yet. With request.Injected, the answer also contains the UIDs that podCache.injected
// returns.
func (a *answers) pong(request lookup.Request) []byte {
	answer := lookup.Answer{Version: capture.PodVersion}
	if err := a.cache.unready(); err != nil {
		answer.Fault = &lookup.Fault{Kind: lookup.Failed, Message: err.Error()}
	}
	if request.Injected {
		answer.Injected = a.cache.injected()
	}
	document, err := json.Marshal(answer)
	if err != nil {
		return nil
	}
	return document
}

// read reads a pod from the API server. Simultaneous requests for the same UID share one read. Requests
// without a UID share none, because a read that began before the request could return an earlier pod of
// that name. read does not add the pod to the cache, because only the watch shows when a pod is gone.
func (a *answers) read(ctx context.Context, pod capture.PodRef) (*entry, error) {
	if pod.UID == "" {
		return a.readAlone(ctx, pod)
	}
	shared := a.reads.DoChan(pod.String()+"/"+pod.UID, func() (any, error) {
		return a.readAlone(context.WithoutCancel(ctx), pod) // kube.Client has its own timeout
	})
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("reading pod %s: %w", pod, ctx.Err())
	case result := <-shared:
		if result.Err != nil {
			return nil, result.Err
		}
		return result.Val.(*entry), nil
	}
}

func (a *answers) readAlone(ctx context.Context, ref capture.PodRef) (*entry, error) {
	pod, err := a.api.Pod(ctx, ref)
	if err != nil {
		return nil, err
	}
	if a.node != "" && pod.Spec.NodeName != a.node && string(pod.UID) != ref.UID {
		return nil, notOfNode{ref, a.node}
	}
	return newEntry(pod, a.cache.meshes)
}

// send returns the document of an entry, or "unchanged" if the caller has the same entry.
func (a *answers) send(source string, e *entry, request lookup.Request) []byte {
	if request.Digest == e.digest {
		return a.encode(sourceUnchanged, lookup.Answer{Unchanged: true})
	}
	document, err := e.answer()
	if err != nil {
		return a.fault(err, request.Pod)
	}
	a.metrics.requests.WithLabelValues(source).Inc()
	return document
}

// fault returns the encoded answer that reports an error.
func (a *answers) fault(err error, pod capture.PodRef) []byte {
	fault := faultOf(err, pod)
	if unready := a.cache.unready(); unready != nil && fault.Kind != lookup.Gone {
		fault.Message = unready.Error() + ": " + fault.Message
	}
	a.log.Debug("a request for a pod failed", "kind", fault.Kind, "error", fault.Message)
	return a.encode(sourceFault, lookup.Answer{Fault: fault})
}

func (a *answers) encode(source string, answer lookup.Answer) []byte {
	a.metrics.requests.WithLabelValues(source).Inc()
	answer.Version = capture.PodVersion
	document, err := json.Marshal(answer)
	if err != nil {
		a.log.Error("encoding an answer failed", "error", err)
	}
	return document
}

// parseRequest reads a request, and checks its names, because they become parts of a URL.
func parseRequest(document []byte) (lookup.Request, error) {
	var request lookup.Request
	if err := json.Unmarshal(document, &request); err != nil {
		return lookup.Request{}, fmt.Errorf("reading the request: %w", err)
	}
	if request.Pod.Name == "" {
		return request, nil
	}
	for _, name := range []string{request.Pod.Namespace, request.Pod.Name} {
		if faults := content.IsPathSegmentName(name); name == "" || len(faults) > 0 {
			return lookup.Request{}, fmt.Errorf("reading the request: %q is not the name of a pod or namespace", name)
		}
	}
	return request, nil
}
