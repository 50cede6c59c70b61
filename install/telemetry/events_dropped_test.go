// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// droppedFor returns the metric of a cause.
func droppedFor(t *testing.T, e *Events, cause string) float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(e.dropped.total)
	return (&agent{registry: registry}).value(t, "events_dropped_total", "cause="+cause)
}

// repairs posts one record of each of n pods.
func repairs(e *Events, n int) {
	for i := range n {
		name := fmt.Sprint("web-", i)
		e.Post(record.Record{
			Time: time.Now(), Pod: capture.PodRef{Namespace: "shop", Name: name, UID: name},
			Verdict: Repaired, Reason: Uncaptured, Message: strings.Repeat("ü", 2*maxMessage),
		})
	}
}

// TestEachRepairHasItsEvent repairs 100 pods at once: each gets an Event, none of which
// is longer than the API server takes.
func TestEachRepairHasItsEvent(t *testing.T) {
	t.Parallel()
	e, s := newEvents(t)
	e.limit = rate.NewLimiter(rate.Inf, 0)
	repairs(e, 100)
	serve(t, e)
	lab.Eventually(t, func() error {
		if events := s.all(); len(events) != 100 {
			return fmt.Errorf("%d Events of 100 pods", len(events))
		}
		return nil
	})
	for _, event := range s.all() {
		if len(event.Message) > maxMessage || len(event.Message) < maxMessage-10 || !strings.HasSuffix(event.Message, "… [uncaptured]") {
			t.Errorf("a message of %d bytes", len(event.Message))
		}
	}
	if n := droppedFor(t, e, causeFull) + droppedFor(t, e, causeError); n != 0 {
		t.Errorf("%v were dropped", n)
	}
}

func serve(t *testing.T, e *Events) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	wait.Go(func() { e.Serve(ctx) })
	t.Cleanup(func() { cancel(); wait.Wait() })
}

// TestRate posts no faster than the limit lets it, and keeps what is not due yet.
func TestRate(t *testing.T) {
	t.Parallel()
	e, s := newEvents(t)
	repairs(e, 2*eventsAtOnce)
	serve(t, e)
	lab.Eventually(t, func() error {
		if n := len(s.all()); n <= eventsAtOnce { // one more than at once
			return fmt.Errorf("%d Events", n)
		}
		return nil
	})
	if n := len(s.all()); n > eventsAtOnce+eventsAtOnce/2 {
		t.Errorf("%d Events at once", n)
	}
	if len(e.queue) == 0 {
		t.Error("nothing waits")
	}
}

// TestDropped posts records of more pods than wait, of which the API server refuses
// some: the Events, and those that the summary counts, are all of them.
func TestDropped(t *testing.T) {
	t.Parallel()
	e, s := newEvents(t)
	log := &lab.Log{}
	e.log = slog.New(slog.NewTextHandler(log, nil))
	const pods = 3 * queueLength
	repairs(e, pods)
	s.refuse = true
	for range 10 {
		if e.post(t.Context(), <-e.queue) == nil {
			t.Fatal("no error")
		}
	}
	s.refuse = false
	if errs := flush(t, e); len(errs) > 0 {
		t.Fatal(errs)
	}
	if n := len(s.all()); n != queueLength-10 {
		t.Errorf("%d Events, want %d", n, queueLength-10)
	}
	now := e.dropped.first.Add(summaryCheck)
	for range 2 { // no second one
		e.postSummary(t.Context(), now)
	}
	want := fmt.Sprintf("%d Events about pods of this node could not be posted", pods-queueLength+10)
	count := 0
	for _, event := range s.all() {
		if event.Reason == eventDropped {
			count++
			if !strings.HasPrefix(event.Message, want) || !strings.Contains(event.Message, "10 because posting them failed") || !strings.HasSuffix(event.Message, " [events-dropped]") || event.InvolvedObject.Kind != "Node" || event.InvolvedObject.Name != "node-1" || len(event.Message) > maxMessage {
				t.Errorf("got %+v", event)
			}
		}
	}
	if count != 1 || strings.Count(log.String(), want) != 1 {
		t.Errorf("%d summaries, log %s", count, log)
	}
	if full, failed := droppedFor(t, e, causeFull), droppedFor(t, e, causeError); full != pods-queueLength || failed != 10 {
		t.Errorf("counted %v and %v", full, failed)
	}
	e.dropped.count(causeFull, now.Add(time.Minute))
	if got := e.dropped.summary(now.Add(summaryInterval - time.Second)); got != "" {
		t.Errorf("a summary that is not due: %q", got)
	}
	e.dropped.count(causeError, now.Add(2*time.Minute))
	for _, want := range []string{"2 Events about pods of this node could not be posted since " + now.Add(time.Minute).UTC().Format(time.RFC3339) + ": 1 because", ""} {
		now = now.Add(2 * summaryInterval)
		if got := e.dropped.summary(now); !strings.HasPrefix(got, want) || (got == "") != (want == "") {
			t.Errorf("the next summary is %q, want %q", got, want)
		}
	}
}

// TestFullQueueCounts counts the notices of Events that a full queue already has.
func TestFullQueueCounts(t *testing.T) {
	t.Parallel()
	e, s := newEvents(t)
	for range 2 {
		repairs(e, queueLength)
	}
	if errs := flush(t, e); len(errs) > 0 || droppedFor(t, e, causeFull) > 0 {
		t.Errorf("got %v; %v were dropped", errs, droppedFor(t, e, causeFull))
	}
	for _, event := range s.all() {
		if event.Count != 2 {
			t.Errorf("%s has %d", event.Name, event.Count)
		}
	}
}

// TestSummaryWaits for the rest of a burst.
func TestSummaryWaits(t *testing.T) {
	t.Parallel()
	e, _ := newEvents(t)
	now := time.Now()
	e.dropped.count(causeFull, now)
	if got := e.dropped.summary(now.Add(summaryCheck - time.Second)); got != "" {
		t.Errorf("a summary while more Events may be dropped: %q", got)
	}
	if got := e.dropped.summary(now.Add(summaryCheck)); got == "" {
		t.Error("no summary after that")
	}
}

// TestRemembersFewEvents keeps no more Events than it must.
func TestRemembersFewEvents(t *testing.T) {
	t.Parallel()
	e, _ := newEvents(t)
	for i := range 12 * queueLength {
		e.Post(of(fmt.Sprint("web-", i), repaired))
		select {
		case s := <-e.queue:
			e.events[s].queued = false
		default:
		}
	}
	if len(e.events) > 4*queueLength+1 {
		t.Errorf("%d are remembered", len(e.events))
	}
}

// TestRefusedWhileServing counts what the API server refuses.
func TestRefusedWhileServing(t *testing.T) {
	t.Parallel()
	e, s := newEvents(t)
	s.refuse = true
	repairs(e, 3)
	serve(t, e)
	lab.Eventually(t, func() error {
		if n := droppedFor(t, e, causeError); n != 3 {
			return fmt.Errorf("%v were counted", n)
		}
		return nil
	})
}
