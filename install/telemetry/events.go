// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capture-cni/capture-cni/install/kube"
	"github.com/capture-cni/capture-cni/install/metrics"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// Events posts Events about pods, in the pods' namespaces, and Events about the node, which summarize
// dropped Events.
type Events struct {
	api     *kube.Client
	node    string
	watched func(capture.PodRef) bool // reports whether the watch of the node's pods has found a pod
	log     *slog.Logger
	limit   *rate.Limiter
	queue   chan subject // subjects whose Events are due
	dropped *droppedEvents
	failing bool // the last post failed

	mu     sync.Mutex
	events map[subject]*counted
}

// counted is an Event whose Count is the number of its notices.
type counted struct {
	corev1.Event
	created bool // the API server has the Event
	queued  bool
}

// notice is the text that one record adds to an Event.
type notice struct {
	subject subject
	code    report.Code
	message string
	trace   string // "" for none
	at      time.Time
}

// subject identifies an Event, which counts all notices with the same subject.
type subject struct {
	pod    capture.PodRef
	reason string
}

// Reasons of Events.
const (
	eventFailed   = "CaptureFailed"
	eventWarning  = "CaptureWarning"
	eventNote     = "CaptureNote" // Events with this reason or eventUpdated are normal ones, and all others are warnings
	eventUpdated  = "CaptureUpdated"
	eventRepaired = "CaptureRepaired"
	eventMissing  = "CaptureMissing"
)

// These limits keep a node on which every pod fails from overloading the API server.
const (
	eventsPerSecond = 1
	eventsAtOnce    = 25
	queueLength     = 256
	postTimeout     = 5 * time.Second
	eventLife       = time.Hour // the API server's default
	maxMessage      = 1024      // the limit of events.k8s.io
)

// NewEvents returns Events for the pods of one node, and registers the metric of dropped Events.
// watched reports whether the agent's watch has found a pod on this node. Call Serve to post the
// Events.
func NewEvents(api *kube.Client, node string, watched func(capture.PodRef) bool, registry prometheus.Registerer, log *slog.Logger) *Events {
	return &Events{
		api: api, node: node, watched: watched, log: log,
		limit:   rate.NewLimiter(eventsPerSecond, eventsAtOnce),
		queue:   make(chan subject, queueLength),
		dropped: newDroppedEvents(metrics.NewFactory(registry)),
		events:  map[subject]*counted{},
	}
}

// Post queues the Events for a record: for its message, its warnings and its notes. While the queue is
// full, Post drops and counts those that are not already queued.
func (e *Events) Post(r record.Record) {
	if r.Pod.Name == "" {
		return
	}
	if reason, code := eventOf(r); reason != "" {
		e.enqueue(notice{subject{r.Pod, reason}, code, r.Message, r.Trace, r.Time})
	}
	if len(r.Warnings) > 0 {
		e.enqueue(notice{subject{r.Pod, eventWarning}, report.AddWarned, strings.Join(r.Warnings, "\n"), r.Trace, r.Time})
	}
	if len(r.Notes) > 0 {
		e.enqueue(notice{subject{r.Pod, eventNote}, report.IPv6Uncaptured, strings.Join(r.Notes, "\n"), r.Trace, r.Time})
	}
}

// eventOf returns the reason and code of the Event for a record's message, or "" if the message needs
// no Event.
func eventOf(r record.Record) (reason string, code report.Code) {
	switch found := r.Verdict == Found; {
	case r.Verdict == record.Failed:
		return eventFailed, report.CodeOfAdd(r.Reason)
	case r.Verdict == Repaired:
		reason = eventRepaired
	case r.Verdict == Updated:
		reason = eventUpdated
	case found && (r.Reason == Uncaptured || r.Reason == Drifted || r.Reason == InjectedLater):
		reason = eventMissing
	case found && (r.Reason == Outdated || r.Reason == Changed):
		reason = eventNote
	case found:
		reason = eventWarning
	}
	return reason, report.Code(r.Reason)
}

// enqueue counts a notice in the Event of its subject, and queues the Event unless it is already
// queued. So one request posts all notices that arrive before the Event's turn. If the queue is full,
// and the Event is not in it, enqueue drops the notice.
func (e *Events) enqueue(n notice) {
	e.mu.Lock()
	defer e.mu.Unlock()
	event := e.events[n.subject]
	if (event == nil || !event.queued) && len(e.queue) == queueLength {
		e.dropped.count(causeFull, time.Now())
		return
	}
	if event == nil {
		e.forget(n.at)
		pod := n.subject.pod
		about := corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: types.UID(pod.UID)}
		event = &counted{Event: e.event(about, pod.Namespace, n.subject.reason, n.at)}
		e.events[n.subject] = event
	}
	event.Count++
	end := n.code.Mark("")
	if n.trace != "" {
		end = n.code.Mark(" (trace " + n.trace + ")")
	}
	event.LastTimestamp, event.Message = metav1.NewTime(n.at), record.Cut(n.message, maxMessage-len(record.Ellipsis+end))+end
	if !event.queued {
		event.queued = true
		e.queue <- n.subject
	}
}

// forget removes Events that are older than eventLife, because the API server deletes them by then. If
// there are too many Events, it also removes newer ones. It keeps the queued ones.
func (e *Events) forget(now time.Time) {
	maps.DeleteFunc(e.events, func(_ subject, event *counted) bool {
		return !event.queued && (now.Sub(event.LastTimestamp.Time) > eventLife || len(e.events) > 4*queueLength)
	})
}

// Serve posts Events, and summaries of dropped Events, until ctx ends.
func (e *Events) Serve(ctx context.Context) {
	summary := time.NewTicker(summaryCheck)
	defer summary.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-summary.C:
			e.postSummary(ctx, now)
		case s := <-e.queue:
			if e.limit.Wait(ctx) == nil {
				_ = e.post(ctx, s) // which logs and counts errors
			}
		}
	}
}

// Flush posts the queued Events, unless ctx ends before, and a summary if one is due.
func (e *Events) Flush(ctx context.Context) {
	for len(e.queue) > 0 && e.limit.Wait(ctx) == nil {
		_ = e.post(ctx, <-e.queue)
	}
	e.postSummary(ctx, time.Now())
}

// post creates or updates the Event of a subject, with all its notices so far. It creates none for a
// pod that isOwn rejects.
func (e *Events) post(ctx context.Context, s subject) (err error) {
	ctx, cancel := context.WithTimeout(ctx, postTimeout)
	defer cancel()
	e.mu.Lock()
	e.events[s].queued = false
	event := *e.events[s]
	e.mu.Unlock()
	defer func() {
		if err != nil {
			e.dropped.count(causeError, time.Now())
		}
		if err != nil && !e.failing { // log only the first of several failures in a row
			e.log.Warn("posting Events failed", "pod", s.pod.String(), "error", err)
		}
		e.failing = err != nil
	}()
	if event.created {
		err := e.api.RecountEvent(ctx, &event.Event)
		if !apierrors.IsNotFound(err) {
			return err
		}
		event.Name = newName(s.pod.Name) // the API server has deleted the Event
	}
	if own, err := e.isOwn(ctx, s.pod); err != nil || !own {
		return err
	}
	err = e.api.CreateEvent(ctx, &event.Event)
	if apierrors.IsAlreadyExists(err) { // an earlier request has created the Event, but its answer was lost
		err = e.api.RecountEvent(ctx, &event.Event)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if kept := e.events[s]; kept != nil {
		kept.created, kept.Name = err == nil, event.Name
	}
	return err
}

// isOwn reports whether a pod exists and runs on this node or, if the node's name is unknown, on any
// node. The record does not prove that, because any process with the agent's uid could have sent it.
func (e *Events) isOwn(ctx context.Context, ref capture.PodRef) (bool, error) {
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
		return false, nil // the pod has ended
	case e.node != "" && pod.Spec.NodeName != e.node:
		e.log.Warn("a record is about a pod of another node; it gets no Event", "pod", ref.String(), "node", pod.Spec.NodeName)
		return false, nil
	}
	return true, nil
}

// newName returns a unique name for an Event, in the form that client-go uses.
func newName(about string) string { return fmt.Sprintf("%s.%x", about, time.Now().UnixNano()) }

func (e *Events) event(about corev1.ObjectReference, namespace, reason string, at time.Time) corev1.Event {
	about.APIVersion = "v1"
	kind := corev1.EventTypeWarning
	if reason == eventNote || reason == eventUpdated {
		kind = corev1.EventTypeNormal
	}
	return corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: newName(about.Name)},
		InvolvedObject: about, Type: kind, Reason: reason, FirstTimestamp: metav1.NewTime(at),
		Source:              corev1.EventSource{Component: component, Host: e.node},
		ReportingController: component, ReportingInstance: e.node,
	}
}

const component = "capture-cni"
