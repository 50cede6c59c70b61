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
	// askTimeout bounds a request for a pod whose desired state is known. Any other
	// waits as long as its examination may take.
	askTimeout = time.Second

	// askPause follows a request that the agent did not answer. In it, pods whose
	// desired state is known are examined without a request, and others, after a
	// request that took askTimeout, not at all: an agent that hangs does not delay the
	// repairs of a whole node.
	askPause = 5 * time.Second
)

// agentAway is logged while the agent does not answer.
const agentAway = "the agent does not answer; edited annotations are not detected"

// asker asks the agent about pods.
type asker struct {
	pods   Pods
	lister *lister
	round  time.Duration
	meshes []config.MeshName // that are on
	once   *onceLog

	known, first breaker // of requests for pods whose desired state is known, and for others

	injected      []string  // UIDs of the node's pods that are injected now, as the agent last said
	injectedAgain time.Time // of the next request for them
}

// ask returns the agent's answer about a pod, or nil if the desired state follows from
// that answer already. While the agent or the container runtime does not answer, a
// desired state that is known stays.
func (a *asker) ask(ctx context.Context, w *watched) (*lookup.Answer, error) {
	if !w.desired.known {
		return a.askNew(ctx, w)
	}
	if a.lister.fault != nil || a.known.refusal() != nil { // without a listing, the annotations are not known
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

// askNew returns the agent's first answer about a pod.
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
		a.first.trip(a.pause(), cmp.Or(err, fmt.Errorf("the agent's last answer took %s", took.Round(time.Millisecond))))
	}
	if err != nil {
		return nil, err
	}
	return &answer, nil
}

// askInjected asks which pods of the node are injected now. Without an answer, the last
// one stays.
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

// isMeshed reports whether a pod is in a mesh, according to its sandbox.
func (a *asker) isMeshed(s cri.Sandbox) bool {
	return hasNetwork(s) && capture.Meshed(s.Annotations, a.meshes)
}

// meshOf returns the first mesh that marks a pod; "" for none.
func (a *asker) meshOf(s cri.Sandbox) config.MeshName {
	for _, mesh := range a.meshes {
		if capture.MarkedBy(mesh, s.Annotations) {
			return mesh
		}
	}
	return ""
}

// injectedLater reports whether the API server shows a pod as one of the mesh that was
// none when its sandbox was made: the plugin has passed it.
func (a *asker) injectedLater(s cri.Sandbox) bool {
	return hasNetwork(s) && !a.isMeshed(s) && slices.Contains(a.injected, s.UID)
}

func (a *asker) pause() time.Duration { return min(askPause, a.round) }

// request makes one request, and reports whether the agent answered it, if only with a
// fault.
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

// breaker keeps a peer that does not answer from delaying the pods of a whole node. Its
// zero value lets calls pass.
type breaker struct {
	until time.Time
	fault error // until then
}

// trip refuses calls for a while, because of a fault.
func (b *breaker) trip(pause time.Duration, fault error) {
	b.until, b.fault = time.Now().Add(pause), fault
}

// refusal returns why no call should be made now, or nil.
func (b *breaker) refusal() error {
	if time.Now().Before(b.until) {
		return b.fault
	}
	return nil
}

// onceLog logs errors that each round would repeat.
type onceLog struct {
	log  *slog.Logger
	last map[string]string // the last error that was logged, by message
}

func newOnceLog(log *slog.Logger) *onceLog { return &onceLog{log: log, last: map[string]string{}} }

// warn logs an error, unless it is the last one that was logged with this message.
func (o *onceLog) warn(message string, err error) {
	if err != nil && err.Error() != o.last[message] {
		o.log.Warn(message, "error", err)
		o.last[message] = err.Error()
	}
}

// forget makes onceLog log the next error with this message again.
func (o *onceLog) forget(message string) { delete(o.last, message) }
