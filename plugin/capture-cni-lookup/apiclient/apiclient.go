// SPDX-License-Identifier: Apache-2.0

// Package apiclient reads one pod from the API server, with credentials from files that
// only root can have written.
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
	"github.com/capture-cni/capture-cni/plugin/record"
	"github.com/capture-cni/capture-cni/plugin/trust"
)

// Answer reads the pod of a request once; without a name, only the credentials. The
// fault of its answer names the cause and what an operator can do about it.
func Answer(ctx context.Context, request lookup.Request) lookup.Answer {
	answer := lookup.Answer{Version: capture.PodVersion}
	if request.Version != capture.PodVersion {
		return answer // the version is the answer
	}
	e, err := loadKubeconfig(request.Directory)
	var pod *corev1.Pod
	if err == nil && request.Pod.Name != "" {
		pod, err = read(ctx, e, request)
	}
	if err != nil {
		answer.Fault = faultOf(err)
	}
	if pod == nil || err != nil {
		return answer
	}
	fields := podfields.Of(pod)
	answer.Pod, answer.UID, answer.HasController = &fields, string(pod.UID), podfields.HasController(pod)
	return answer
}

// read may take the first attempt's pod from the API server's cache. If the cache
// does not have it, the pod is read from etcd.
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

func readOnce(ctx context.Context, client *rest.RESTClient, e endpoint, want record.PodRef, cached bool) (*corev1.Pod, error) {
	pod, err := getPod(ctx, client, e, want, cached)
	if err != nil {
		return nil, apiError{err, e}
	}
	if want.UID != "" && string(pod.UID) != want.UID {
		return nil, uidMismatch{want, string(pod.UID)}
	}
	return pod, nil
}

// uidMismatch is the error for an earlier or later pod of the same name.
type uidMismatch struct {
	want  record.PodRef
	found string
}

func (m uidMismatch) Error() string {
	return fmt.Sprintf("the pod on the API server has UID %s, expected %s", m.found, m.want.UID)
}

func faultOf(err error) *lookup.Fault {
	return &lookup.Fault{Kind: kindOf(err), Message: withHint(err).Error(), RetryAfter: retryAfter(err)}
}

func kindOf(err error) lookup.FaultKind {
	switch {
	case isA[trust.Untrusted](err):
		return lookup.Untrusted
	case errors.Is(err, fs.ErrNotExist) && !isA[apiError](err):
		return lookup.NoCredentials
	case apierrors.IsNotFound(err) || isA[uidMismatch](err):
		return lookup.Gone
	case isRefused(err):
		return lookup.Refused
	}
	return lookup.Failed
}

// isRefused reports whether retries fail until an operator intervenes.
func isRefused(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		switch code := status.Status().Code; code {
		case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooManyRequests:
			return false
		default:
			return code >= 400 && code < 500
		}
	}
	return isCertificateError(err) || isA[httplimit.TooLarge](err) || !isA[apiError](err)
}

// retryAfter returns the delay that an overloaded API server asks for.
func retryAfter(err error) time.Duration {
	seconds, ok := apierrors.SuggestsClientDelay(err)
	if !ok {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
