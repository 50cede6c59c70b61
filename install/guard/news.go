// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"time"

	"github.com/capture-cni/capture-cni/plugin/record"
)

// news is what the agent is to know, who makes Events of it. It waits for an
// agent that does not listen yet, as on a node that has just started.
type news struct {
	socket  string
	waiting []record.Record
}

// mostNews is more than a node has pods; the oldest goes first.
const mostNews = 512

// add tells what was found of a pod, if it is worth it.
func (n *news) add(w *watched) {
	verdict, state := record.Found, w.finding.State
	if w.finding.Repaired != "" {
		verdict, state = record.Repaired, w.finding.Repaired
	}
	if state == Captured || state == Exempt || state == Unknown || n.socket == "" {
		return
	}
	n.waiting = append(n.waiting, recordOf(w, verdict, state))
	n.waiting = n.waiting[max(0, len(n.waiting)-mostNews):]
}

// doom asks for a pod's eviction, of an agent that listens: it is asked again
// after the next look.
func (n *news) doom(w *watched) {
	record.Send(n.socket, recordOf(w, record.Doomed, w.finding.State))
}

func recordOf(w *watched, verdict record.Verdict, state State) record.Record {
	return record.Record{
		Time: time.Now(), Pod: record.PodRef{Namespace: w.sandbox.Namespace, Name: w.sandbox.Name, UID: w.sandbox.UID}, Sandbox: w.sandbox.ID,
		Verdict: verdict, Reason: record.Reason(state), Message: message(verdict, state, w.finding.Reason),
	}
}

// message is what a pod's owner reads.
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

// send hands over what waits, as far as it is taken.
func (n *news) send() {
	for len(n.waiting) > 0 && record.Send(n.socket, n.waiting[0]) {
		n.waiting = n.waiting[1:]
	}
}
