// SPDX-License-Identifier: Apache-2.0

// Package podlookup reads one pod from the API server, with credentials from files
// that only root can write.
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

// Error is a failed lookup. The runtime may retry the ADD.
type Error struct{ Err error }

func (e Error) Error() string { return e.Err.Error() }
func (e Error) Unwrap() error { return e.Err }

// IsGone reports whether a lookup failed because the pod does not exist, or not with
// that UID.
func IsGone(err error) bool { return apierrors.IsNotFound(err) || isA[uidMismatch](err) }

// Lookup holds the settings of pod lookups.
type Lookup struct {
	Directory     string        // of the kubeconfig and of the files that it names
	Timeout       time.Duration // including retries
	SingleAttempt bool
	Uncached      bool // read from etcd, for a caller that acts on IsGone
	Log           *slog.Logger
}

const (
	firstBackoff = 100 * time.Millisecond
	maxBackoff   = 2 * time.Second
)

// Pod reads one pod from the API server. Every attempt reads the kubeconfig, token and
// CA again, because the agent may have renewed them, and opens a new connection,
// because the previous one may be dead. Errors: Untrusted; Error.
func (l Lookup) Pod(ctx context.Context, want record.PodRef) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	// The first attempts may be served from the API server's cache. If it does not
	// have this pod, the next attempt reads from etcd.
	cached := want.UID != "" && !l.Uncached
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
		// The error of an attempt that the deadline canceled does not name the cause.
		if cause == nil || ctx.Err() == nil {
			cause = err
		}
		l.Log.Debug("pod lookup failed", "attempt", attempt, "error", err)
		failed := func(reason string) error {
			return Error{fmt.Errorf("looking up pod %s (attempt %d, %s): %w", want, attempt, reason, withHint(cause))}
		}
		if isFinal(err) || l.SingleAttempt {
			return nil, failed("not retried")
		}
		cached = cached && !apierrors.IsNotFound(err) && !isA[uidMismatch](err)
		pause := max(jitter(backoff), retryAfter(err))
		backoff = min(2*backoff, maxBackoff)
		if deadline, _ := ctx.Deadline(); time.Until(deadline) < pause {
			return nil, failed("lookupTimeout of " + l.Timeout.String() + " is used up")
		}
		if err := sleep(ctx, pause); err != nil {
			return nil, failed("canceled")
		}
	}
}

const attemptTimeout = 3 * time.Second // including the connection

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

// sleep returns the context's error if the context ends during the pause.
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

// retryAfter returns the delay that an overloaded API server asks for.
func retryAfter(err error) time.Duration {
	seconds, ok := apierrors.SuggestsClientDelay(err)
	if !ok {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

// isFinal reports whether retries fail until an operator intervenes.
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
	return isCertificateError(err) || isA[httplimit.TooLarge](err) || !isA[apiError](err) && !isA[uidMismatch](err)
}

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
