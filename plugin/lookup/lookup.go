// SPDX-License-Identifier: Apache-2.0

// Package lookup reads one pod. It asks the node agent, which watches its node's pods. If no agent is
// configured, or if the agent takes longer than hedgeDelay, or fails and does not report that the pod is
// gone, it asks the API server, by executing capture-cni-lookup. With token.onNode=false, the node lacks
// this program, so only the agent can return a pod.
package lookup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/trust"
)

// Error is the error of a failed lookup. A later ADD of the pod may succeed.
type Error struct{ Err error }

func (e Error) Error() string { return e.Err.Error() }
func (e Error) Unwrap() error { return e.Err }

// Lookup holds the settings of pod lookups.
type Lookup struct {
	Agent         Agent         // has no Socket if only the API server should be asked
	Program       string        // path of capture-cni-lookup; see ProgramPath
	Directory     string        // directory of the credentials
	Timeout       time.Duration // limit for one lookup, including retries
	SingleAttempt bool
	Log           *slog.Logger
}

const (
	firstBackoff = 100 * time.Millisecond
	maxBackoff   = 2 * time.Second
)

// Pod looks up one pod. It retries until it gets an answer, the timeout leaves no time for a retry, or
// retries can't help. With SingleAttempt, it does not retry. If want has no UID, it returns the pod that
// has this name now. Errors: trust.Untrusted; Error.
func (l Lookup) Pod(ctx context.Context, want capture.PodRef) (Answer, error) {
	within, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	retries := backoff(firstBackoff)
	var last failedAttempt
	for number := 1; ; number++ {
		answer, failed := l.attempt(within, Request{Pod: want, Attempt: number})
		if failed.isNone() {
			return answer, nil
		}
		if fault, ok := errors.AsType[*Fault](failed.api); ok && fault.Kind == Untrusted {
			return Answer{}, trust.Untrusted(failed.api.Error())
		}
		// If the deadline canceled this attempt, its error does not name the cause, so the lookup
		// reports the error of the attempt before.
		if last.isNone() || within.Err() == nil {
			last = failed
		}
		l.Log.Debug("an attempt of a pod lookup failed", "attempt", number, "error", failed.join())
		end := func(reason string) error {
			return Error{fmt.Errorf("looking up pod %s (attempt %d, %s): %w", want, number, reason, last.join())}
		}
		if l.SingleAttempt || failed.isFinal() {
			return Answer{}, end("not retried")
		}
		pause := retries.next(failed.retryAfter())
		if deadline, _ := within.Deadline(); time.Until(deadline) < pause {
			return Answer{}, end("lookupTimeout of " + l.Timeout.String() + " leaves no time for a retry")
		}
		select {
		case <-ctx.Done():
			return Answer{}, end("canceled")
		case <-time.After(pause):
		}
	}
}

// CheckWays returns nil if the agent can answer requests, or if the node has usable credentials, and
// otherwise an error with the reasons. It sends no request to the API server.
func (l Lookup) CheckWays(ctx context.Context) error {
	var agent error
	if l.Agent.Socket != "" {
		ctx, cancel := context.WithTimeout(ctx, agentTimeout)
		defer cancel()
		if agent = l.Agent.Ping(ctx); agent == nil {
			return nil
		}
	}
	_, api := l.askProgram(ctx, Request{})
	if api != nil {
		return errors.Join(agent, api)
	}
	return nil
}

// backoff is the duration of the next pause between retries, before jitter.
type backoff time.Duration

// next returns the duration of the pause, and doubles that of the following one, up to maxBackoff. The
// pause is at least asked, the delay that an overloaded API server requested. Random jitter spreads the
// retries of many pods.
func (b *backoff) next(asked time.Duration) time.Duration {
	pause := time.Duration(*b)
	*b = backoff(min(2*pause, maxBackoff))
	return max(pause/2+rand.N(pause), asked)
}
