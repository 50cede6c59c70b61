// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/capture-cni/capture-cni/install/kube"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// Events posts Events on pods, in the pods' own namespaces.
type Events struct {
	api    *kube.Client
	node   string
	log    *slog.Logger
	queue  chan notice
	limit  flowcontrol.RateLimiter
	posted map[subject]*counted
}

// counted is an Event with its count so far, and whether the API server has it.
type counted struct {
	corev1.Event
	created bool
}

// notice is a message about a pod.
type notice struct {
	subject subject
	message string
	at      time.Time
}

// subject is what one Event is about: it counts further notices.
type subject struct {
	pod    record.PodRef
	reason string
}

// Reasons of Events.
const (
	eventFailed   = "CaptureFailed"
	eventWarning  = "CaptureWarning"
	eventRepaired = "CaptureRepaired"
	eventMissing  = "CaptureMissing"
)

// Limits: a node on which every pod fails must not fill the API server.
const (
	eventsPerSecond = 1
	eventsAtOnce    = 25
	queueLength     = 256
	postTimeout     = 5 * time.Second
	eventLife       = time.Hour // default of the API server
	maxMessage      = 1024      // limit of the API server
)

// NewEvents returns Events of one node's pods. Serve posts them.
func NewEvents(api *kube.Client, node string, log *slog.Logger) *Events {
	return &Events{
		api: api, node: node, log: log,
		queue:  make(chan notice, queueLength),
		limit:  flowcontrol.NewTokenBucketRateLimiter(eventsPerSecond, eventsAtOnce),
		posted: map[subject]*counted{},
	}
}

// Post queues the Events that a record calls for. When the queue is full they are
// dropped.
func (e *Events) Post(r record.Record) {
	if r.Pod.Name == "" {
		return
	}
	if reason := eventReason(r); reason != "" {
		e.enqueue(notice{subject{r.Pod, reason}, r.Message, r.Time})
	}
	if len(r.Warnings) > 0 {
		e.enqueue(notice{subject{r.Pod, eventWarning}, strings.Join(r.Warnings, "\n"), r.Time})
	}
}

// eventReason returns the reason of the Event for a record's message, "" for none.
func eventReason(r record.Record) string {
	switch {
	case r.Verdict == record.Failed:
		return eventFailed
	case r.Verdict == record.Repaired:
		return eventRepaired
	case r.Verdict == record.Found && (r.Reason == record.Uncaptured || r.Reason == record.Drifted):
		return eventMissing
	case r.Verdict == record.Found:
		return eventWarning
	}
	return ""
}

func (e *Events) enqueue(n notice) {
	select {
	case e.queue <- n:
	default:
	}
}

// Serve posts Events until ctx ends.
func (e *Events) Serve(ctx context.Context) {
	var failing bool
	for {
		select {
		case <-ctx.Done():
			return
		case n := <-e.queue:
			err := e.post(ctx, n)
			if err != nil && !failing { // the first of a row
				e.log.Warn("posting Events failed", "pod", n.subject.pod.String(), "error", err)
			}
			failing = err != nil
		}
	}
}

// post creates an Event, or updates the one of the same subject. A notice beyond
// the rate limit is counted in the next update.
func (e *Events) post(ctx context.Context, n notice) error {
	e.forget(n.at)
	event := e.posted[n.subject]
	if event == nil {
		event = &counted{Event: e.event(n)}
		e.posted[n.subject] = event
	}
	event.Count++
	event.LastTimestamp, event.Message = metav1.NewTime(n.at), cut(n.message)
	if !e.limit.TryAccept() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, postTimeout)
	defer cancel()
	if event.created {
		err := e.api.RecountEvent(ctx, &event.Event)
		if !apierrors.IsNotFound(err) {
			return err
		}
		event.Name = newName(n.subject.pod) // the API server has deleted it
	}
	err := e.api.CreateEvent(ctx, &event.Event)
	event.created = err == nil
	return err
}

// forget deletes the Events that the API server has deleted, and others where
// there are too many.
func (e *Events) forget(now time.Time) {
	for s, event := range e.posted {
		if now.Sub(event.LastTimestamp.Time) > eventLife || len(e.posted) > 4*queueLength {
			delete(e.posted, s)
		}
	}
}

// newName returns a name of the form that client-go's recorder gives Events.
func newName(pod record.PodRef) string { return fmt.Sprintf("%s.%x", pod.Name, time.Now().UnixNano()) }

func (e *Events) event(n notice) corev1.Event {
	pod := n.subject.pod
	return corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: pod.Namespace, Name: newName(pod)},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: pod.Namespace, Name: pod.Name, UID: types.UID(pod.UID)},
		Type:           corev1.EventTypeWarning, Reason: n.subject.reason,
		FirstTimestamp:      metav1.NewTime(n.at),
		Source:              corev1.EventSource{Component: component, Host: e.node},
		ReportingController: component, ReportingInstance: e.node,
	}
}

const component = "capture-cni"

func cut(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	return strings.ToValidUTF8(text[:maxMessage-len("…")], "") + "…"
}
