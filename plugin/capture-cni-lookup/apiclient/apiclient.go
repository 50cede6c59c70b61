// SPDX-License-Identifier: Apache-2.0

// Package apiclient reads one pod from the API server, with credentials from files that only root can
// write.
package apiclient

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/httplimit"
	"github.com/capture-cni/capture-cni/plugin/lookup"
	"github.com/capture-cni/capture-cni/plugin/podfields"
	"github.com/capture-cni/capture-cni/plugin/trust"
)

// Answer reads the requested pod, without retries. For a request without a pod's name, it only reads the
// credentials. A fault in the answer names the cause and, if it is known, the operator's next step.
func Answer(ctx context.Context, request lookup.Request) lookup.Answer {
	answer := lookup.Answer{Version: capture.PodVersion}
	if request.Version != capture.PodVersion {
		return answer // the version is the whole answer
	}
	e, err := loadKubeconfig(request.Directory)
	if err == nil && request.Pod.Name != "" {
		var pod *corev1.Pod
		if pod, err = read(ctx, e, request); err == nil {
			return AnswerOf(pod)
		}
	}
	if err != nil {
		answer.Fault = faultOf(err)
	}
	return answer
}

// AnswerOf returns the answer that contains a pod. The answer has no digest.
func AnswerOf(pod *corev1.Pod) lookup.Answer {
	fields := podfields.Of(pod)
	return lookup.Answer{Version: capture.PodVersion, UID: string(pod.UID), HasController: podfields.HasController(pod), Pod: &fields}
}

// read reads the pod. In the first attempt for a pod with a UID, it accepts a pod from the API server's
// cache, and asks etcd only if the cache lacks the pod or has another pod of that name. In a later
// attempt, or for a pod without a UID, it asks etcd.
func read(ctx context.Context, e endpoint, request lookup.Request) (*corev1.Pod, error) {
	client, err := restClient(e, max(request.Attempt, 1))
	if err != nil {
		return nil, err
	}
	if request.Attempt == 1 && request.Pod.UID != "" {
		pod, err := readOnce(ctx, client, e, request.Pod, true)
		if !apierrors.IsNotFound(err) && !isA[uidMismatch](err) {
			return pod, err
		}
	}
	return readOnce(ctx, client, e, request.Pod, false)
}

// readOnce sends one GET. If cached is set, the answer can be as old as the API server's cache.
func readOnce(ctx context.Context, client *rest.RESTClient, e endpoint, want capture.PodRef, cached bool) (*corev1.Pod, error) {
	request := client.Get().Namespace(want.Namespace).Resource("pods").Name(want.Name).MaxRetries(0)
	if cached {
		request.Param("resourceVersion", "0")
	}
	if e.token != "" {
		request.SetHeader("Authorization", "Bearer "+e.token)
	}
	pod := &corev1.Pod{}
	if err := request.Do(ctx).Into(pod); err != nil {
		return nil, apiError{err, e}
	}
	return pod, CheckUID(want, string(pod.UID))
}

// CheckUID returns an error if want has a UID and the found pod has another UID, because the found pod
// is then an earlier or later pod of the same name.
func CheckUID(want capture.PodRef, found string) error {
	if want.UID == "" || want.UID == found {
		return nil
	}
	return uidMismatch{want.UID, found}
}

type uidMismatch struct{ want, found string }

func (m uidMismatch) Error() string {
	return fmt.Sprintf("the pod on the API server has UID %s, expected %s", m.found, m.want)
}

// faultOf returns the fault of a read with the credentials on the node. Unlike FaultOf, it also
// recognizes missing, untrusted and invalid credentials, and adds the operator's next step if
// the cause is known.
func faultOf(err error) *lookup.Fault {
	fault := FaultOf(err)
	fault.Message = withHint(err).Error()
	switch {
	case fault.Kind != lookup.Failed:
	case isA[trust.Untrusted](err):
		fault.Kind = lookup.Untrusted
	case errors.Is(err, fs.ErrNotExist) && !isA[apiError](err):
		fault.Kind = lookup.NoCredentials
	case isCertificateError(err) || !isA[apiError](err):
		fault.Kind = lookup.Refused
	}
	return fault
}

// FaultOf returns the fault that describes a failed read of a pod.
func FaultOf(err error) *lookup.Fault {
	fault := &lookup.Fault{Kind: lookup.Failed, Message: err.Error()}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		fault.RetryAfter = time.Duration(seconds) * time.Second
	}
	var status apierrors.APIStatus
	switch {
	case apierrors.IsNotFound(err) || isA[uidMismatch](err):
		fault.Kind = lookup.Gone
	case isA[httplimit.TooLarge](err) || errors.As(err, &status) && isFinal(status.Status().Code):
		fault.Kind = lookup.Refused
	}
	return fault
}

// isFinal reports whether a status code of the API server means that retries fail until an
// operator intervenes.
func isFinal(code int32) bool {
	switch code {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	}
	return code >= 400 && code < 500
}

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
