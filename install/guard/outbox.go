// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"time"

	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/install/telemetry"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// outbox queues the records for the agent, which posts Events. The records wait until an agent listens,
// for example after the node's start.
type outbox struct {
	deliver func(record.Record) (received bool)
	queue   []record.Record
}

// outboxSize limits the queue, and exceeds the number of pods on most nodes. If the queue is full, the
// oldest record is dropped.
const outboxSize = 512

// add queues the record of a pod's finding, repair or update, unless it needs no Event.
func (o *outbox) add(w *watched) {
	verdict, state := telemetry.Found, w.finding.Code
	if w.repaired != "" {
		verdict, state = telemetry.Repaired, w.repaired
	}
	if w.repaired == report.Outdated {
		verdict = telemetry.Updated
	}
	if state == report.Captured || state == report.Exempt || state == report.Unknown {
		return
	}
	o.queue = append(o.queue, recordOf(w, verdict, state))
	o.queue = o.queue[max(0, len(o.queue)-outboxSize):]
}

// requestEviction sends the agent a request to evict a pod. It does not queue a request that the agent
// does not receive, because the next examination repeats it.
func (o *outbox) requestEviction(w *watched) {
	o.deliver(recordOf(w, telemetry.EvictionRequested, w.finding.Code))
}

func recordOf(w *watched, verdict record.Verdict, state report.Code) record.Record {
	return record.Record{
		Time: time.Now(), Pod: refOf(w.sandbox), Sandbox: w.sandbox.ID,
		Verdict: verdict, Reason: capture.Reason(state), Message: message(verdict, state, w.finding.Reason),
	}
}

// message returns the text of the Event, which the pod's owner reads.
func message(verdict record.Verdict, state report.Code, reason string) string {
	switch verdict {
	case telemetry.Updated:
		return "the pod's capture rules were updated " + reason
	case telemetry.Repaired:
		if state == report.Uncaptured {
			return "the pod ran without capture and is captured now: " + reason
		}
		return "the pod's capture rules were changed and are restored: " + reason
	}
	return foundTexts[state] + reason
}

var foundTexts = map[report.Code]string{
	report.Uncaptured:    "the pod is not captured: ",
	report.Drifted:       "the pod's capture rules were changed and are not restored: ",
	report.Outdated:      "the pod is captured by rules of another version or configuration; a restart renews them, or guard.update=rules: ",
	report.Obstructed:    "other rules in the pod's network namespace could keep packets from the capture rules: ",
	report.Foreign:       "the pod is captured by another plugin's rules: ",
	report.InjectedLater: "the pod is not captured, though it seems to be in the mesh: ",
}

// send sends queued records until the agent accepts no more. Unsent records stay in the queue.
func (o *outbox) send() {
	for len(o.queue) > 0 && o.deliver(o.queue[0]) {
		o.queue = o.queue[1:]
	}
}
