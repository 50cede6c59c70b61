// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/lookup"
)

const (
	// askTimeout limits a request about a pod whose desired state is known, and the request for the
	// injected pods. A request about any other pod may take as long as the pod's examination.
	askTimeout = time.Second

	// askPause limits a pause in the requests, so that an agent that hangs does not delay the repairs of
	// a whole node. In the pause after an unanswered request about a pod whose desired state is known,
	// the guard examines such pods without a request. In the pause after a request about another pod
	// that took at least askTimeout, it does not examine the pods whose desired state is unknown.
	askPause = 5 * time.Second
)

// agentAway is the message that is logged when the agent does not answer.
const agentAway = "the agent does not answer; edited annotations are not detected, and pods that are new to the guard are not examined"

// asker sends the guard's requests for pods to the agent.
type asker struct {
	pods   Pods
	lister *lister
	round  time.Duration
	meshes []config.MeshName // the meshes whose pods are captured
	once   *onceLog

	known, first breaker // known is for pods whose desired state is known, and first for other pods

	injected      []string  // UIDs of the node's injected pods, except those that their fields exempt, as the agent last answered
	injectedAgain time.Time // time of the next request for injected
}

// ask returns the agent's answer about a pod, or nil if the known desired state still applies. The
// known state also applies while the container runtime does not list the sandboxes, while the agent does
// not answer, and if the agent answers with a fault other than lookup.Gone.
func (a *asker) ask(ctx context.Context, w *watched) (*lookup.Answer, error) {
	if !w.desired.known {
		return a.askNew(ctx, w)
	}
	if a.lister.fault != nil || a.known.refusal() != nil { // without a listing, the pod's annotations at its creation are missing
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answer, answered, err := a.request(ctx, w)
	if !answered {
		a.known.trip(a.pause(), err)
	}
	switch {
	case lookup.IsGone(err):
		return nil, err
	case err != nil || answer.Unchanged:
		return nil, nil
	}
	return &answer, nil
}

// askNew returns the agent's answer about a pod whose desired state is unknown. It returns an error
// without a request if the runtime did not list the sandboxes, and in the pause after a request that
// took at least askTimeout.
func (a *asker) askNew(ctx context.Context, w *watched) (*lookup.Answer, error) {
	if a.lister.fault != nil {
		return nil, fmt.Errorf("the annotations at the pod's creation are not known: %w", a.lister.fault)
	}
	if refusal := a.first.refusal(); refusal != nil {
		return nil, refusal
	}
	began := time.Now()
	answer, _, err := a.request(ctx, w)
	if took := time.Since(began); took >= askTimeout {
		a.first.trip(a.pause(), cmp.Or(err, fmt.Errorf("requests pause, because the agent's last answer took %s", took.Round(time.Millisecond))))
	}
	if err != nil {
		return nil, err
	}
	return &answer, nil
}

// askInjected updates the UIDs in injected, if the next request for them is due and other requests are
// not in a pause. After an error, the previous UIDs stay.
func (a *asker) askInjected(ctx context.Context) {
	now := time.Now()
	if a.known.refusal() != nil || a.first.refusal() != nil || now.Before(a.injectedAgain) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answer, err := a.pods.Ask(ctx, lookup.Request{Injected: true})
	a.injectedAgain = time.Now().Add(a.pause())
	if err == nil {
		a.injected, a.injectedAgain = answer.Injected, now.Add(a.round)
	}
}

// isMeshed reports whether a pod was in one of the meshes, or requested a fence, when its sandbox was
// created. It returns false for a pod that is known to be in the node's network.
func (a *asker) isMeshed(s cri.Sandbox) bool {
	return hasNetwork(s) && capture.Meshed(s.Annotations, a.meshes)
}

// meshOf returns the first mesh that marked a pod when its sandbox was created, or "".
func (a *asker) meshOf(s cri.Sandbox) config.MeshName {
	for _, mesh := range a.meshes {
		if capture.MarkedBy(mesh, s.Annotations) {
			return mesh
		}
	}
	return ""
}

// injectedLater reports whether a pod is injected now, as the agent last answered, but was in no mesh
// when its sandbox was created, so that the plugin did not capture it.
func (a *asker) injectedLater(s cri.Sandbox) bool {
	return hasNetwork(s) && !a.isMeshed(s) && slices.Contains(a.injected, s.UID)
}

func (a *asker) pause() time.Duration { return min(askPause, a.round) }

// request sends one request about a pod. answered is true if the agent answered, even with a fault, or
// if ctx was canceled.
func (a *asker) request(ctx context.Context, w *watched) (answer lookup.Answer, answered bool, err error) {
	answer, err = a.pods.Ask(ctx, lookup.Request{Pod: refOf(w.sandbox), Digest: w.desired.digest})
	_, faulty := errors.AsType[*lookup.Fault](err)
	answered = err == nil || faulty || errors.Is(err, context.Canceled)
	if answered {
		a.once.forget(agentAway)
	} else {
		a.once.warn(agentAway, err)
	}
	return answer, answered, err
}

// breaker stops calls to a program that does not answer in time, so that they do not delay the
// examinations of a whole node. Its zero value permits calls.
type breaker struct {
	until time.Time
	fault error // why calls are stopped
}

// trip stops calls for a while, because of a fault.
func (b *breaker) trip(pause time.Duration, fault error) {
	b.until, b.fault = time.Now().Add(pause), fault
}

// refusal returns the reason for which calls are stopped, or nil if they are permitted.
func (b *breaker) refusal() error {
	if time.Now().Before(b.until) {
		return b.fault
	}
	return nil
}

// onceLog logs only once an error that recurs in each round.
type onceLog struct {
	log  *slog.Logger
	last map[string]string // maps a message to the error that was logged last
}

func newOnceLog(log *slog.Logger) *onceLog { return &onceLog{log: log, last: map[string]string{}} }

// warn logs an error under a message, unless it is nil or equals the last error under this message.
func (o *onceLog) warn(message string, err error) {
	if err != nil && err.Error() != o.last[message] {
		o.log.Warn(message, "error", err)
		o.last[message] = err.Error()
	}
}

// forget makes warn log the next error under this message, even if it equals the last one.
func (o *onceLog) forget(message string) { delete(o.last, message) }
