// SPDX-License-Identifier: Apache-2.0

// Package taint takes a node's startup taint away once pods would be captured
// there. Whoever registers the node has put it there; this package never does.
package taint

import (
	"context"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
)

// Remover waits for one node.
type Remover struct {
	key  string
	api  api
	look func(context.Context) error
	show func(tainted bool)
	log  *slog.Logger

	complaint complaint
	last      string // what was logged last
}

// NewRemover takes the taint of a key off a node once look says that nothing is
// wrong there. show is told whether the node has it.
func NewRemover(access *rest.Config, node, key string, look func(context.Context) error, show func(tainted bool), log *slog.Logger) (*Remover, error) {
	api, err := connect(access, node)
	if err != nil {
		return nil, err
	}
	return &Remover{key: key, api: api, look: look, show: show, log: log}, nil
}

const (
	firstPause = time.Second // between looks at a tainted node
	maxPause   = 5 * time.Second

	// resync is between looks at a node without the taint: its Node may be
	// registered anew.
	resync = time.Minute
)

// Run goes on until ctx ends.
func (r *Remover) Run(ctx context.Context) {
	pause := firstPause
	for {
		wait := resync
		if r.pass(ctx) {
			wait, pause = pause, min(2*pause, maxPause)
		} else {
			pause = firstPause
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// pass looks once, and tells whether to look again soon.
func (r *Remover) pass(ctx context.Context) (again bool) {
	node, err := r.api.read(ctx, true)
	if err != nil {
		r.say(err.Error())
		return true
	}
	tainted := has(node.Spec.Taints, r.key)
	r.show(tainted)
	if !tainted {
		r.complaint = complaint{}
		return false
	}
	if fault := r.look(ctx); fault != nil {
		r.complain(ctx, node, fault)
		return true
	}
	if err := r.api.remove(ctx, node, r.key); err != nil {
		r.say(err.Error())
		return true
	}
	r.show(false)
	r.complaint = complaint{}
	r.say("took the taint " + r.key + " off the node")
	return false
}

// complain says why the taint stays.
func (r *Remover) complain(ctx context.Context, node *corev1.Node, fault error) {
	message := "the taint " + r.key + " stays: " + fault.Error()
	r.say(message)
	if !r.complaint.due(time.Now(), message) {
		return
	}
	if err := r.api.warn(ctx, node, message); err != nil {
		r.complaint.posted = time.Time{}
		r.log.Warn("nobody but this log is told why the taint stays", "error", err)
	}
}

// say logs what was not logged just before.
func (r *Remover) say(message string) {
	if message != r.last {
		r.last = message
		r.log.Info(message)
	}
}
