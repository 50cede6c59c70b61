// SPDX-License-Identifier: Apache-2.0

package lookup

import (
	"context"
	"errors"
	"slices"
	"time"
)

const (
	// hedgeDelay is for the agent's answer: after it, the API server is asked, too.
	hedgeDelay = time.Second

	agentTimeout = 12 * time.Second // the agent's own for a read from the API server is shorter
	apiTimeout   = 3 * time.Second  // including the program's start and the connection
)

// failedAttempt has the error of each way that was tried.
type failedAttempt struct{ agent, api error }

// attempt asks the agent, and the API server once the agent has failed or has not
// answered for hedgeDelay. The first pod counts.
func (l Lookup) attempt(ctx context.Context, request Request) (Answer, failedAttempt) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends what is still asked
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
			if !IsGone(got.err) { // the agent has read it from the API server
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

// start asks in the background.
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

// isFinal reports whether retries fail until an operator intervenes. An agent that
// does not serve may be starting; on a node without credentials it is waited for.
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

// retryAfter returns the longest delay that the API server asked for.
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
