// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/httplimit"
)

// lookupError is a pod that could not be read; trying again later may help.
type lookupError struct{ error }

func (e lookupError) Unwrap() error { return e.error }

const (
	firstBackoff = 100 * time.Millisecond
	maxBackoff   = 2 * time.Second
)

// lookup reads the pod from the API server, within the configured budget; or, if
// it is hurried, by one attempt.
// Every attempt reads kubeconfig, token and CA anew, so that a renewal helps
// at once, and opens a connection of its own, so that a dead one harms no
// other. Errors: untrusted; lookupError.
func lookup(ctx context.Context, conf config.NetConf, want podIdentity, hurried bool, log *slog.Logger) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, conf.LookupTimeout)
	defer cancel()
	// The first read may come from the API server's cache; one that did not
	// find this very pod is repeated against etcd.
	cached := want.UID != ""
	backoff := firstBackoff
	var cause error
	for attempt := 1; ; attempt++ {
		pod, err := attemptLookup(ctx, filepath.Dir(conf.Kubeconfig), want, attempt, cached)
		if err == nil {
			return pod, nil
		}
		if isA[untrusted](err) {
			return nil, err
		}
		// An attempt that the budget cut short says nothing about the cause.
		if cause == nil || ctx.Err() == nil {
			cause = err
		}
		log.Debug("pod lookup failed", "attempt", attempt, "error", err)
		failed := func(reason string) error {
			return lookupError{fmt.Errorf("looking up pod %s (attempt %d, %s): %w", want, attempt, reason, explain(cause))}
		}
		if isFinal(err) || hurried {
			return nil, failed("not worth repeating at once")
		}
		cached = cached && !apierrors.IsNotFound(err) && !isA[namesake](err)
		pause := max(jitter(backoff), retryAfter(err))
		backoff = min(2*backoff, maxBackoff)
		if deadline, _ := ctx.Deadline(); time.Until(deadline) < pause {
			return nil, failed("lookupTimeout of " + conf.LookupTimeout.String() + " is used up")
		}
		time.Sleep(pause)
	}
}

// attemptTimeout bounds one attempt, dialling included.
const attemptTimeout = 3 * time.Second

func attemptLookup(ctx context.Context, directory string, want podIdentity, attempt int, cached bool) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	e, err := loadKubeconfig(directory)
	if err != nil {
		return nil, err
	}
	pod, err := getPod(ctx, e, want, attempt, cached)
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
	want  podIdentity
	found string
}

func (n namesake) Error() string {
	return fmt.Sprintf("the API server has a pod of that name with UID %s, the runtime wants %s", n.found, n.want.UID)
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

// isFinal tells errors that only an operator can mend.
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
