// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"time"

	"github.com/capture-cni/capture-cni/plugin/record"
)

// outbox holds the records for the agent, which posts Events of them. They wait for
// an agent that does not listen yet, as on a node that has just started.
type outbox struct {
	socket  string
	waiting []record.Record
}

// outboxSize is more than a node has pods; the oldest record is dropped first.
const outboxSize = 512

// add adds a record of what was found of a pod, unless all is well.
func (o *outbox) add(w *watched) {
	verdict, state := record.Found, w.finding.State
	if w.finding.Repaired != "" {
		verdict, state = record.Repaired, w.finding.Repaired
	}
	if state == Captured || state == Exempt || state == Unknown || o.socket == "" {
		return
	}
	o.waiting = append(o.waiting, recordOf(w, verdict, state))
	o.waiting = o.waiting[max(0, len(o.waiting)-outboxSize):]
}

// requestEviction asks an agent that listens to evict a pod. The next examination
// repeats the request.
func (o *outbox) requestEviction(w *watched) {
	record.Send(o.socket, recordOf(w, record.EvictionRequested, w.finding.State))
}

func recordOf(w *watched, verdict record.Verdict, state State) record.Record {
	return record.Record{
		Time: time.Now(), Pod: record.PodRef{Namespace: w.sandbox.Namespace, Name: w.sandbox.Name, UID: w.sandbox.UID}, Sandbox: w.sandbox.ID,
		Verdict: verdict, Reason: record.Reason(state), Message: message(verdict, state, w.finding.Reason),
	}
}

// message is the text of the Event, for the pod's owner.
func message(verdict record.Verdict, state State, reason string) string {
	switch {
	case verdict == record.Repaired && state == Uncaptured:
		return "the pod ran without capture and is captured now: " + reason
	case verdict == record.Repaired:
		return "the pod's rules had been changed and are as they were again: " + reason
	case state == Uncaptured || state == Drifted:
		return "the pod is not captured as it should be: " + reason
	case state == Outdated:
		return "the pod is captured by rules of another version or configuration; a restart renews them: " + reason
	case state == Obstructed:
		return "another table in the pod's network namespace could keep packets from the capture rules: " + reason
	case state == Foreign:
		return "the pod is captured by rules that are not ours: " + reason
	}
	return reason
}

// send sends the records that wait, until the agent takes no more.
func (o *outbox) send() {
	for len(o.waiting) > 0 && record.Send(o.socket, o.waiting[0]) {
		o.waiting = o.waiting[1:]
	}
}
