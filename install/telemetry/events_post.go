// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/capture-cni/capture-cni/plugin/record"
)

// post creates an Event, or updates the one of the same subject.
func (e *Events) post(ctx context.Context, s subject, event counted) error {
	ctx, cancel := context.WithTimeout(ctx, postTimeout)
	defer cancel()
	if event.created {
		err := e.api.RecountEvent(ctx, &event.Event)
		if !apierrors.IsNotFound(err) {
			return err
		}
		event.Name = newName(s.pod.Name) // the API server has deleted it
	}
	if own, err := e.isOwn(ctx, s.pod); err != nil || !own {
		return err
	}
	err := e.api.CreateEvent(ctx, &event.Event)
	e.mu.Lock()
	defer e.mu.Unlock()
	if kept := e.events[s]; kept != nil {
		kept.created, kept.Name = err == nil, event.Name
	}
	return err
}

// isOwn reports whether a pod exists and runs on this node. A record says so, too, but any
// process that reaches the socket can have written it.
func (e *Events) isOwn(ctx context.Context, ref record.PodRef) (bool, error) {
	if e.watched(ref) {
		return true, nil
	}
	pod, err := e.api.Pod(ctx, ref)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, err
	case ref.UID != "" && string(pod.UID) != ref.UID:
		return false, nil // it has ended
	case e.node != "" && pod.Spec.NodeName != e.node:
		e.log.Warn("a record is about a pod of another node; it gets no Event", "pod", ref.String(), "node", pod.Spec.NodeName)
		return false, nil
	}
	return true, nil
}
