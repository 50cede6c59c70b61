// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// TestForget deletes Events that have ended, and those that are not queued while there are too many.
func TestForget(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, tt := range map[string]struct {
		age    time.Duration
		queued bool
		others int // young ones
		stays  bool
	}{
		"young":               {time.Minute, false, 0, true},
		"at its end":          {eventLife, false, 0, true},
		"ended":               {eventLife + 1, false, 0, false},
		"ended, and queued":   {eventLife + 1, true, 0, true},
		"of as many as allow": {time.Minute, false, 4*queueLength - 1, true},
		"of many, and queued": {time.Minute, true, 4 * queueLength, true},
	} {
		e, _ := newEvents(t)
		kept := func(reason string, age time.Duration, queued bool) {
			event := &counted{queued: queued}
			event.LastTimestamp = metav1.NewTime(now.Add(-age))
			e.events[subject{reason: reason}] = event
		}
		for i := range tt.others {
			kept(fmt.Sprint(i), 0, false)
		}
		kept("x", tt.age, tt.queued)
		e.forget(now)
		_, stays := e.events[subject{reason: "x"}]
		if stays != tt.stays || len(e.events) > 4*queueLength || stays && tt.others < 4*queueLength && len(e.events) != tt.others+1 {
			t.Errorf("%s: it stays: %v, of %d", name, stays, len(e.events))
		}
	}
}

// TestQueuedOnce queues an Event once for all notices before its turn, also with a full queue.
func TestQueuedOnce(t *testing.T) {
	t.Parallel()
	e, _ := newEvents(t)
	repairs(e, queueLength)
	first := of("web-0", repaired)
	for s := range e.events {
		first.Pod = s.pod
	}
	e.Post(first)
	if n, dropped := e.events[subject{first.Pod, eventRepaired}].Count, droppedFor(t, e, causeFull); n != 2 || dropped != 0 || len(e.queue) != queueLength {
		t.Errorf("counted %d times, %v dropped, %d queued", n, dropped, len(e.queue))
	}
}

// TestNote posts a note as an Event that is no warning, with what reports it.
func TestNote(t *testing.T) {
	t.Parallel()
	e, s := newEvents(t)
	noted := captured
	noted.Warnings, noted.Notes, noted.Pod.UID = nil, []string{"a", "b"}, "" // the runtime passes no UID
	e.Post(noted)
	lab.Check(t, errors.Join(flush(t, e)...))
	if all := s.all(); len(all) != 1 || all[0].Reason != eventNote || all[0].Type != corev1.EventTypeNormal || all[0].Message != "a\nb [uncaptured-ipv6]" ||
		all[0].InvolvedObject.APIVersion != "v1" || all[0].ReportingController != "capture-cni" || all[0].ReportingInstance != "node-1" {
		t.Errorf("posted %+v", all)
	}
	if reason, _ := eventOf(record.Record{Verdict: record.Captured, Reason: Uncaptured}); reason != "" {
		t.Errorf("an ADD has the Event %s", reason)
	}
}

// TestNodeOfEvents posts about a pod of another node only if the agent does not know its own, and logs what it leaves
// out. A summary is about a node.
func TestNodeOfEvents(t *testing.T) {
	t.Parallel()
	for node, want := range map[string]int{"node-1": 2, "": 1, "node-2": 1} {
		e, s := newEvents(t)
		log := &lab.Log{}
		e.node, e.log = node, slog.New(slog.NewTextHandler(log, nil))
		e.Post(failed)
		lab.Check(t, errors.Join(flush(t, e)...))
		e.dropped.count(causeFull, time.Now().Add(-time.Hour))
		e.postSummary(t.Context(), time.Now())
		if n := len(s.all()); n != want || strings.Contains(log.String(), "a record is about a pod of another node") != (node == "node-2") {
			t.Errorf("node %q: %d Events, want %d; logged %s", node, n, want, log)
		}
		for _, event := range s.all() {
			if event.Reason == eventDropped && string(event.InvolvedObject.UID) != node {
				t.Errorf("about a node with UID %q", event.InvolvedObject.UID)
			}
		}
		s.refuse = true
		if strings.Contains(log.String(), "posting a summary") {
			t.Errorf("logged %s", log)
		}
		e.dropped.count(causeFull, time.Now())
		e.postSummary(t.Context(), time.Now().Add(time.Hour))
		if strings.Contains(log.String(), "posting a summary of dropped Events failed") != (node != "") {
			t.Errorf("node %q: logged %s", node, log)
		}
	}
}

// TestFailuresAreLogged logs the first failure of a row.
func TestFailuresAreLogged(t *testing.T) {
	t.Parallel()
	e, s := newEvents(t)
	log := &lab.Log{}
	e.log = slog.New(slog.NewTextHandler(log, nil))
	serve(t, e)
	for i, refuse := range []bool{false, true, true, false, true} {
		s.mu.Lock()
		s.refuse = refuse
		s.mu.Unlock()
		before := droppedFor(t, e, causeError)
		e.Post(of(fmt.Sprint("web-", i), repaired))
		lab.Eventually(t, func() error {
			if posted := len(s.all()); refuse && droppedFor(t, e, causeError) == before || !refuse && posted <= i/2 {
				return fmt.Errorf("step %d: %d Events", i, posted)
			}
			return nil
		})
	}
	lab.Eventually(t, func() error {
		if n := strings.Count(log.String(), "posting Events failed"); n != 2 {
			return fmt.Errorf("logged %d times: %s", n, log)
		}
		return nil
	})
}
