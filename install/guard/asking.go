// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/capture-cni/capture-cni/plugin/podlookup"
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

// ask returns the agent's answer about a pod, or nil if the desired state follows from
// that answer already. While the agent or the container runtime does not answer, a
// desired state that is known stays.
func (g *Guard) ask(ctx context.Context, w *watched) (*podlookup.Answer, error) {
	if !w.desired.known {
		return g.askNew(ctx, w)
	}
	if g.lister.fault != nil || time.Now().Before(g.askAgain) { // without a listing, the annotations are not known
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answer, answered, err := g.request(ctx, w)
	if !answered {
		g.askAgain = g.afterPause()
	}
	switch {
	case podlookup.IsGone(err):
		return nil, err
	case err != nil || answer.Unchanged:
		return nil, nil
	}
	return &answer, nil
}

// askNew returns the agent's first answer about a pod.
func (g *Guard) askNew(ctx context.Context, w *watched) (*podlookup.Answer, error) {
	switch {
	case g.lister.fault != nil:
		return nil, fmt.Errorf("the annotations at the pod's creation are not known: %w", g.lister.fault)
	case time.Now().Before(g.askNewAgain):
		return nil, g.askNewFault
	}
	began := time.Now()
	answer, _, err := g.request(ctx, w)
	if took := time.Since(began); took >= askTimeout {
		g.askNewAgain = g.afterPause()
		g.askNewFault = cmp.Or(err, fmt.Errorf("the agent's last answer took %s", took.Round(time.Millisecond)))
	}
	if err != nil {
		return nil, err
	}
	return &answer, nil
}

// askInjected asks which pods of the node are injected now. Without an answer, the last
// one stays.
func (g *Guard) askInjected(ctx context.Context) {
	now := time.Now()
	if now.Before(g.askAgain) || now.Before(g.askNewAgain) || now.Before(g.injectedAgain) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answer, err := g.pods.Ask(ctx, podlookup.Request{Injected: true})
	g.injectedAgain = g.afterPause()
	if err == nil {
		g.injected, g.injectedAgain = answer.Injected, now.Add(g.settings.Round)
	}
}

func (g *Guard) afterPause() time.Time { return time.Now().Add(min(askPause, g.settings.Round)) }

// request makes one request, and reports whether the agent answered it, if only with a
// fault.
func (g *Guard) request(ctx context.Context, w *watched) (answer podlookup.Answer, answered bool, err error) {
	answer, err = g.pods.Ask(ctx, podlookup.Request{Pod: refOf(w.sandbox), Digest: w.desired.digest})
	_, faulty := errors.AsType[*podlookup.Fault](err)
	answered = err == nil || faulty || errors.Is(err, context.Canceled)
	if answered {
		g.agentError = ""
	} else {
		g.warnOnce(&g.agentError, "the agent does not answer; edited annotations are not detected", err)
	}
	return answer, answered, err
}
