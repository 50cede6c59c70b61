// SPDX-License-Identifier: Apache-2.0

// Package podlookup reads one pod from the API server, by credentials that only
// root could have placed.
package podlookup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/capture-cni/capture-cni/plugin/httplimit"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// Error is a pod that could not be read; trying again later may help.
type Error struct{ Err error }

func (e Error) Error() string { return e.Err.Error() }
func (e Error) Unwrap() error { return e.Err }

// IsGone reports whether a lookup failed because the API server has no such pod,
// or another one of that name.
func IsGone(err error) bool { return apierrors.IsNotFound(err) || isA[namesake](err) }

// Lookup is how pods are read.
type Lookup struct {
	Directory     string        // of the kubeconfig and of all that it names
	Timeout       time.Duration // of all attempts together
	SingleAttempt bool
	Log           *slog.Logger
}

const (
	firstBackoff = 100 * time.Millisecond
	maxBackoff   = 2 * time.Second
)

// Pod reads one pod from the API server. Every attempt reads kubeconfig, token and
// CA anew, so that a renewal helps at once, and opens a connection of its own, so
// that a dead one harms no other. Errors: Untrusted; Error.
func (l Lookup) Pod(ctx context.Context, want record.PodRef) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	// The first of several reads may come from the API server's cache; one that
	// did not find this very pod is repeated against etcd.
	cached := want.UID != "" && !l.SingleAttempt
	backoff := firstBackoff
	var cause error
	for attempt := 1; ; attempt++ {
		pod, err := l.attempt(ctx, want, attempt, cached)
		if err == nil {
			return pod, nil
		}
		if isA[Untrusted](err) {
			return nil, err
		}
		// An attempt that the budget cut short says nothing about the cause.
		if cause == nil || ctx.Err() == nil {
			cause = err
		}
		l.Log.Debug("pod lookup failed", "attempt", attempt, "error", err)
		failed := func(reason string) error {
			return Error{fmt.Errorf("looking up pod %s (attempt %d, %s): %w", want, attempt, reason, explain(cause))}
		}
		if isFinal(err) || l.SingleAttempt {
			return nil, failed("not worth repeating at once")
		}
		cached = cached && !apierrors.IsNotFound(err) && !isA[namesake](err)
		pause := max(jitter(backoff), retryAfter(err))
		backoff = min(2*backoff, maxBackoff)
		if deadline, _ := ctx.Deadline(); time.Until(deadline) < pause {
			return nil, failed("lookupTimeout of " + l.Timeout.String() + " is used up")
		}
		if err := sleep(ctx, pause); err != nil {
			return nil, failed("the call was ended")
		}
	}
}

// attemptTimeout bounds one attempt, dialling included.
const attemptTimeout = 3 * time.Second

func (l Lookup) attempt(ctx context.Context, want record.PodRef, number int, cached bool) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	e, err := loadKubeconfig(l.Directory)
	if err != nil {
		return nil, err
	}
	pod, err := getPod(ctx, e, want, number, cached)
	if err != nil {
		return nil, apiError{err, e}
	}
	if want.UID != "" && string(pod.UID) != want.UID {
		return nil, namesake{want, string(pod.UID)}
	}
	return pod, nil
}

// namesake is a pod of the same name from before or after the one wanted.
type namesake struct {
	want  record.PodRef
	found string
}

func (n namesake) Error() string {
	return fmt.Sprintf("the API server has a pod of that name with UID %s, the runtime wants %s", n.found, n.want.UID)
}

// sleep waits, or returns the reason why the context ended before.
func sleep(ctx context.Context, pause time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(pause):
		return nil
	}
}

// jitter spreads the retries of many pods over time.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d) }

// retryAfter is how long an overloaded API server asks to be left alone.
func retryAfter(err error) time.Duration {
	seconds, ok := apierrors.SuggestsClientDelay(err)
	if !ok {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

// isFinal reports whether only an operator can mend what failed.
func isFinal(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		switch code := status.Status().Code; code {
		case http.StatusUnauthorized, http.StatusNotFound, http.StatusRequestTimeout, http.StatusTooManyRequests:
			return false
		default:
			return code >= 400 && code < 500
		}
	}
	return isCertificateError(err) || isA[httplimit.TooLarge](err) || !isA[apiError](err) && !isA[namesake](err)
}

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
