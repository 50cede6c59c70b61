// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capture-cni/capture-cni/install/report"
)

// LeaseAPI is the part of Client that a LeaseWriter uses.
type LeaseAPI interface {
	Lease(ctx context.Context, namespace, name string) (*coordination.Lease, error)
	CreateLease(ctx context.Context, lease *coordination.Lease) (*coordination.Lease, error)
	UpdateLease(ctx context.Context, lease *coordination.Lease) (*coordination.Lease, error)
}

// LeaseSettings contains the settings of a LeaseWriter.
type LeaseSettings struct {
	Namespace, Node string
	Holder          string        // the name of the agent's pod
	NodeUID         func() string // UID of the Node that owns the Lease; "" for no owner
	State           func(context.Context) report.NodeState
}

// LeaseWriter writes the Lease of one node.
type LeaseWriter struct {
	settings LeaseSettings
	api      LeaseAPI
	log      *slog.Logger

	stored  *coordination.Lease // the Lease as the API server has it, or nil if unknown
	written string              // the state that was written last
	at      time.Time           // of the last successful write
	beat    time.Duration       // time until the next write if nothing changes
	next    time.Time           // earliest time of the next write
	pause   time.Duration       // current back-off; zero after a successful write
	fault   string              // the fault that was logged last
}

// NewLeaseWriter returns a LeaseWriter.
func NewLeaseWriter(settings LeaseSettings, api LeaseAPI, log *slog.Logger) *LeaseWriter {
	return &LeaseWriter{settings: settings, api: api, log: log}
}

const (
	firstDelay = 2 * time.Second // about the duration of the first check of the node
	interval   = 10 * time.Second
	heartbeat  = 5 * time.Minute // between writes if nothing changes
	maxPause   = 5 * time.Minute // between failed writes

	// faultyHeartbeat is the time between two writes of an unchanged state with faults or warnings. It
	// is shorter than heartbeat, so that the Lease becomes stale soon after the agent has stopped.
	faultyHeartbeat = time.Minute
)

// Run writes the state after each change and at intervals, until ctx ends. At its end, it does not
// delete the Lease. The next agent continues to write the Lease, or the Lease becomes stale.
func (w *LeaseWriter) Run(ctx context.Context) {
	wait := firstDelay
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		w.Publish(ctx, time.Now())
		wait = interval
	}
}

// Publish writes the state if that is due.
func (w *LeaseWriter) Publish(ctx context.Context, now time.Time) {
	if now.Before(w.next) && w.next.Sub(now) <= maxPause { // a longer pause means that the clock was set back
		return
	}
	current := w.settings.State(ctx)
	if w.beat = heartbeat; len(current.Findings.Of(report.Problem, report.Waiting, report.Warning)) > 0 {
		w.beat = faultyHeartbeat
	}
	state, age := current.Encode(), now.Sub(w.at)
	if state == w.written && age >= 0 && age < w.beat {
		return
	}
	err := w.write(ctx, state, now)
	if ctx.Err() != nil {
		return
	}
	w.note(err)
	if err != nil {
		w.stored = nil
		w.pause = min(max(2*w.pause, interval), maxPause)
	} else {
		w.written, w.at, w.pause = state, now, 0
	}
	w.next = now.Add(max(w.pause, interval))
}

// note logs an error, unless it equals the previous error, and logs the first success after an error.
func (w *LeaseWriter) note(err error) {
	switch {
	case err != nil && err.Error() != w.fault:
		w.log.Warn("publishing the node's state failed; retrying", "error", err)
		w.fault = err.Error()
	case err == nil && w.fault != "":
		w.log.Info("the node's state is published again")
		w.fault = ""
	}
}

// errForeign means that another program wrote the Lease with the node's name.
var errForeign = errors.New("another program uses the Lease of this name: install the agents in a namespace of their own")

// write creates or updates the Lease. If the writer has no copy of the Lease, write reads the Lease
// first.
func (w *LeaseWriter) write(ctx context.Context, state string, now time.Time) (err error) {
	lease := w.stored
	if lease == nil {
		lease, err = w.api.Lease(ctx, w.settings.Namespace, w.settings.Node)
	}
	switch {
	case apierrors.IsNotFound(err):
		w.stored, err = w.api.CreateLease(ctx, w.lease(nil, state, now))
		return err
	case err != nil:
		return err
	case !isOurs(lease):
		return fmt.Errorf("writing Lease %s/%s: %w", w.settings.Namespace, w.settings.Node, errForeign)
	}
	w.stored, err = w.api.UpdateLease(ctx, w.lease(lease, state, now))
	return err
}

func isOurs(lease *coordination.Lease) bool {
	for key, value := range report.LeaseLabels() {
		if lease.Labels[key] != value {
			return false
		}
	}
	return true
}

// lease returns the Lease with a new state. It keeps labels and annotations that other programs added
// to the Lease before, and its owners.
func (w *LeaseWriter) lease(before *coordination.Lease, state string, now time.Time) *coordination.Lease {
	lease := &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: w.settings.Namespace, Name: w.settings.Node}}
	if before != nil {
		lease = before.DeepCopy()
	} else if uid := w.settings.NodeUID(); uid != "" {
		// Another owner needs the permission to delete the Lease with the admission plugin
		// OwnerReferencesPermissionEnforcement, which OpenShift enables.
		lease.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Node", Name: w.settings.Node, UID: types.UID(uid),
		}}
	}
	for key, value := range report.LeaseLabels() {
		metav1.SetMetaDataLabel(&lease.ObjectMeta, key, value)
	}
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, report.NodeAnnotation, state)
	// The Lease is valid for two heartbeats and a minute. If it expires, the agent has ended or can't
	// write the Lease.
	seconds, renewed := int32((2*w.beat+time.Minute)/time.Second), metav1.NewMicroTime(now)
	lease.Spec = coordination.LeaseSpec{HolderIdentity: &w.settings.Holder, LeaseDurationSeconds: &seconds, RenewTime: &renewed}
	return lease
}
