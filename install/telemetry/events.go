// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/capture-cni/capture-cni/install/kube"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// Events tells pods' owners, in their own namespaces, what became of their pods.
type Events struct {
	client rest.Interface
	node   string
	log    *slog.Logger
	queue  chan news
	limit  flowcontrol.RateLimiter
	told   map[subject]*told
}

// told is an Event, and whether the API server has it.
type told struct {
	corev1.Event
	posted bool
}

// news is something to tell about a pod.
type news struct {
	subject subject
	message string
	at      time.Time
}

// subject is what one Event is about: further news are counted in it.
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
	eventLife       = time.Hour // as long as the API server keeps one, by default
	maxMessage      = 1024      // as the API server has it
)

// NewEvents connects to nothing yet.
func NewEvents(access *rest.Config, node string, log *slog.Logger) (*Events, error) {
	client, err := kube.Client(access, func(scheme *runtime.Scheme) {
		scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Event{})
	})
	if err != nil {
		return nil, err
	}
	return &Events{
		client: client, node: node, log: log,
		queue: make(chan news, queueLength),
		limit: flowcontrol.NewTokenBucketRateLimiter(eventsPerSecond, eventsAtOnce),
		told:  map[subject]*told{},
	}, nil
}

// Post has it told what is worth it, later or, where there is too much, never.
func (e *Events) Post(r record.Record) {
	if r.Pod.Name == "" {
		return
	}
	if reason := eventOf(r); reason != "" {
		e.put(news{subject{r.Pod, reason}, r.Message, r.Time})
	}
	if len(r.Warnings) > 0 {
		e.put(news{subject{r.Pod, eventWarning}, strings.Join(r.Warnings, "\n"), r.Time})
	}
}

// eventOf gives the reason of the Event that a record's message deserves.
func eventOf(r record.Record) string {
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

func (e *Events) put(n news) {
	select {
	case e.queue <- n:
	default:
	}
}

// Serve tells until ctx ends.
func (e *Events) Serve(ctx context.Context) {
	var failing bool
	for {
		select {
		case <-ctx.Done():
			return
		case n := <-e.queue:
			err := e.tell(ctx, n)
			if err != nil && !failing { // the first of a row
				e.log.Warn("Events are not posted", "pod", n.subject.pod.Namespace+"/"+n.subject.pod.Name, "error", err)
			}
			failing = err != nil
		}
	}
}

// tell posts an Event, or counts in one that is there. What the limit keeps back
// is counted, and told with the next.
func (e *Events) tell(ctx context.Context, n news) error {
	e.forget(n.at)
	event := e.told[n.subject]
	if event == nil {
		event = &told{Event: e.event(n)}
		e.told[n.subject] = event
	}
	event.Count++
	event.LastTimestamp, event.Message = metav1.NewTime(n.at), cut(n.message)
	if !e.limit.TryAccept() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, postTimeout)
	defer cancel()
	if event.posted {
		err := e.patch(ctx, &event.Event)
		if !apierrors.IsNotFound(err) {
			return err
		}
		event.Name = newName(n.subject.pod) // it has ended
	}
	err := e.create(ctx, &event.Event)
	event.posted = err == nil
	return err
}

// forget makes room: an old Event is gone, and a new one is to be made.
func (e *Events) forget(now time.Time) {
	for s, event := range e.told {
		if now.Sub(event.LastTimestamp.Time) > eventLife || len(e.told) > 4*queueLength {
			delete(e.told, s)
		}
	}
}

// newName is as others name theirs.
func newName(pod record.PodRef) string { return fmt.Sprintf("%s.%x", pod.Name, time.Now().UnixNano()) }

func (e *Events) event(n news) corev1.Event {
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

func (e *Events) create(ctx context.Context, event *corev1.Event) error {
	err := e.client.Post().Namespace(event.Namespace).Resource("events").Body(event.DeepCopy()).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("posting an Event: %w", err)
	}
	return nil
}

func (e *Events) patch(ctx context.Context, event *corev1.Event) error {
	change, err := json.Marshal(map[string]any{"count": event.Count, "lastTimestamp": event.LastTimestamp, "message": event.Message})
	if err != nil {
		return fmt.Errorf("counting an Event: %w", err)
	}
	err = e.client.Patch(types.MergePatchType).Namespace(event.Namespace).Resource("events").Name(event.Name).Body(change).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("counting an Event: %w", err)
	}
	return nil
}

func cut(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	return strings.ToValidUTF8(text[:maxMessage-len("…")], "") + "…"
}
