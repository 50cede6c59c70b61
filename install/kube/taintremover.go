// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TaintRemover removes the startup taint of one node.
type TaintRemover struct {
	key, node string
	api       *Client
	ready     func(context.Context) error
	observe   func(tainted bool)
	log       *slog.Logger

	reminder reminder
	pause    time.Duration // before the next check of a tainted node
	logged   string        // the message that was logged last
}

// NewTaintRemover returns a TaintRemover of the taint with this key. It removes the taint once ready
// returns nil, and tells observe, after each reading of the Node and after the removal, whether the
// node has the taint.
func NewTaintRemover(
	api *Client, node, key string, ready func(context.Context) error, observe func(tainted bool), log *slog.Logger,
) *TaintRemover {
	return &TaintRemover{key: key, node: node, api: api, ready: ready, observe: observe, log: log}
}

const (
	firstPause    = time.Second // between checks of a tainted node
	maxTaintPause = 5 * time.Second

	// resync is the time between checks of a node without the taint. The checks continue because a Node
	// that is registered again has the taint again.
	resync = time.Minute
)

// Run checks the node, and removes its taint, until ctx ends.
func (r *TaintRemover) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(r.Step(ctx)):
		}
	}
}

// Step checks the node once, and returns the time until the next check.
func (r *TaintRemover) Step(ctx context.Context) (wait time.Duration) {
	if !r.check(ctx) {
		r.pause = 0
		return resync
	}
	r.pause = min(max(2*r.pause, firstPause), maxTaintPause)
	return r.pause
}

// check removes the taint if the node is ready, and reports whether the next check should follow soon.
func (r *TaintRemover) check(ctx context.Context) (again bool) {
	node, err := r.api.Node(ctx, r.node, "0")
	if err != nil {
		r.logOnce(err.Error())
		return true
	}
	tainted := slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == r.key })
	r.observe(tainted)
	if !tainted {
		r.reminder = reminder{}
		return false
	}
	if err := r.ready(ctx); err != nil {
		r.explain(ctx, node, err)
		return true
	}
	if err := r.api.RemoveTaint(ctx, node, r.key); err != nil {
		r.logOnce(err.Error())
		return true
	}
	r.observe(false)
	r.reminder = reminder{}
	r.logOnce("removed the taint " + r.key + " from the node")
	return false
}

// explain logs why the taint stays, and posts an Event if one is due.
func (r *TaintRemover) explain(ctx context.Context, node *corev1.Node, cause error) {
	message := "the taint " + r.key + " stays: " + cause.Error()
	r.logOnce(message)
	if !r.reminder.due(time.Now(), message) {
		return
	}
	if err := r.api.CreateEvent(ctx, r.event(node, message)); err != nil {
		r.reminder.posted = time.Time{}
		r.log.Warn("posting an Event about the taint failed; retrying", "node", r.node, "error", err)
	}
}

func (r *TaintRemover) event(node *corev1.Node, message string) *corev1.Event {
	now := metav1.Now()
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: "capture-cni-", Namespace: metav1.NamespaceDefault},
		InvolvedObject: corev1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: r.node, UID: node.UID},
		Type:           corev1.EventTypeWarning, Reason: "CaptureNotReady", Message: message,
		Source:         corev1.EventSource{Component: "capture-cni-node", Host: r.node},
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
}

// logOnce logs a message, unless it equals the previous message.
func (r *TaintRemover) logOnce(message string) {
	if message != r.logged {
		r.logged = message
		r.log.Info(message)
	}
}

const (
	// grace is the time in which a fault causes no Event and leaves the condition unchanged, because a
	// new agent or a repair may need this time.
	grace = 10 * time.Second

	// samePause is the time between two Events with the same message, and changedPause the time between
	// Events with different messages.
	samePause    = 5 * time.Minute
	changedPause = 30 * time.Second
)

// reminder decides when to post Events about a node that keeps its taint.
type reminder struct {
	since, posted time.Time
	message       string
}

// due reports whether an Event should be posted now. If it returns true, the Event counts as posted.
func (r *reminder) due(now time.Time, message string) bool {
	if r.since.IsZero() {
		r.since = now
	}
	pause := samePause
	if message != r.message {
		pause = changedPause
	}
	if now.Sub(r.since) < grace || now.Sub(r.posted) < pause {
		return false
	}
	r.posted, r.message = now, message
	return true
}
