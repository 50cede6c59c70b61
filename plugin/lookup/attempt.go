// SPDX-License-Identifier: Apache-2.0

package lookup

import (
	"context"
	"errors"
	"slices"
	"time"
)

const (
	// hedgeDelay is the time after which an attempt also asks the API server, if the agent has not
	// answered.
	hedgeDelay = time.Second

	agentTimeout = 12 * time.Second // longer than the agent's own limit for a read from the API server
	apiTimeout   = 3 * time.Second  // includes the program's start and the connection
)

// failedAttempt contains the errors of an attempt, from the agent and from the API server. An error is
// nil if the attempt did not ask there.
type failedAttempt struct{ agent, api error }

// attempt asks the agent, if its socket is known. It asks the API server if the socket is unknown, if
// the agent has not answered after hedgeDelay, or if the agent fails for another reason than that the
// pod is gone. It returns the first answer that is no error.
func (l Lookup) attempt(ctx context.Context, request Request) (Answer, failedAttempt) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // cancels the request that has not been answered
	var failed failedAttempt
	var agent, api <-chan outcome
	hedge := time.NewTimer(hedgeDelay)
	defer hedge.Stop()
	askAPI := func() {
		if api == nil && failed.api == nil {
			api = start(ctx, apiTimeout, request, l.askProgram)
		}
	}
	if l.Agent.Socket == "" {
		askAPI()
	} else {
		agent = start(ctx, agentTimeout, request, l.Agent.Ask)
	}
	for agent != nil || api != nil {
		select {
		case <-hedge.C:
			askAPI()
		case got := <-agent:
			if got.err == nil {
				return got.answer, failedAttempt{}
			}
			agent, failed.agent = nil, got.err
			if !IsGone(got.err) { // the agent itself asks the API server before it reports that a pod is gone
				askAPI()
			}
		case got := <-api:
			if got.err == nil {
				return got.answer, failedAttempt{}
			}
			api, failed.api = nil, got.err
		}
	}
	return Answer{}, failed
}

type outcome struct {
	answer Answer
	err    error
}

func start(ctx context.Context, timeout time.Duration, request Request, ask func(context.Context, Request) (Answer, error)) <-chan outcome {
	answered := make(chan outcome, 1)
	go func() {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		answer, err := ask(ctx, request)
		answered <- outcome{answer, err}
	}()
	return answered
}

func (f failedAttempt) isNone() bool { return f.agent == nil && f.api == nil }

func (f failedAttempt) join() error { return errors.Join(f.agent, f.api) }

// isFinal reports whether retries would fail until an operator intervenes. An agent that does not serve
// requests may be starting, so in this case missing credentials are not final.
func (f failedAttempt) isFinal() bool {
	apiFinal := isFault(f.api, Refused, NoCredentials)
	switch _, notServing := errors.AsType[notServing](f.agent); {
	case f.agent == nil || isFault(f.agent, Refused):
		return apiFinal
	case notServing:
		return isFault(f.api, Refused)
	}
	return false
}

// retryAfter returns the longest delay that the API server requested.
func (f failedAttempt) retryAfter() (longest time.Duration) {
	for _, err := range []error{f.agent, f.api} {
		if fault, ok := errors.AsType[*Fault](err); ok {
			longest = max(longest, fault.RetryAfter)
		}
	}
	return longest
}

func isFault(err error, kinds ...FaultKind) bool {
	fault, ok := errors.AsType[*Fault](err)
	return ok && slices.Contains(kinds, fault.Kind)
}
