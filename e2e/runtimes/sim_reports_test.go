// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"encoding/json"
	"net/http"
	"path"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capture-cni/capture-cni/e2e/kubeapi"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/install/telemetry"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// receive is the agent's socket for records. A record that no agent receives waits in the spool, if it
// is one of a failure.
func (w *world) receive(_ string, r record.Record) bool {
	switch {
	case w.agentServes() && w.agent.state == "present":
		w.post(r)
	case r.Verdict == record.Failed:
		w.spool = append(w.spool, r)
	}
	return true
}

// subject is what one Event is about.
type subject struct{ uid, reason string }

// post lets the agent post the Events of a record, and counts them.
func (w *world) post(r record.Record) {
	a := w.agent
	a.events.Post(r)
	found := r.Verdict == telemetry.Found
	isMissing := r.Reason == capture.Reason(report.Uncaptured) || r.Reason == capture.Reason(report.Drifted)
	for reason, isDue := range map[string]bool{
		"CaptureFailed": r.Verdict == record.Failed, "CaptureWarning": len(r.Warnings) > 0,
		"CaptureNote":    len(r.Notes) > 0 || found && r.Reason == capture.Reason(report.Changed),
		"CaptureMissing": found && isMissing, "CaptureRepaired": r.Verdict == telemetry.Repaired,
	} {
		if about := (subject{r.Pod.UID, reason}); isDue && r.Pod.UID != "" {
			if a.notices[about]++; a.notices[about] == 1 {
				w.posters[about]++
			}
			a.unposted[about] = true
		}
	}
}

// postEvents lets the agent post its Events, and checks that the API server has them all.
func (w *world) postEvents() {
	a := w.agent
	refused, unposted := w.refused, a.unposted
	a.unposted = map[subject]bool{}
	a.events.Flush(a.ctx)
	if len(unposted) == 0 || refused != w.refused || w.apiState != "ok" || time.Since(a.began) > 50*time.Minute { // an Event lasts an hour
		return
	}
	found := w.findEvents()
	for _, p := range w.pods {
		for _, reason := range []string{"CaptureFailed", "CaptureWarning", "CaptureNote", "CaptureMissing", "CaptureRepaired"} {
			about := subject{string(p.UID), reason}
			all := found[about]
			switch {
			case len(all) > w.posters[about]:
				w.fail("Events: %d for %s of %s, from %d agents", len(all), reason, p.Name, w.posters[about])
			case !unposted[about]:
			case len(all) > 0 && int(all[len(all)-1].Count) == a.notices[about]:
				w.reach("an Event: " + reason)
			default:
				w.fail("Events: %s has %d notices of %s, and the Events %+v", p.Name, a.notices[about], reason, all)
			}
		}
	}
}

// findEvents returns all Events about pods.
func (w *world) findEvents() map[subject][]corev1.Event {
	found := map[subject][]corev1.Event{}
	for _, event := range w.posted {
		if event.InvolvedObject.Kind == "Pod" {
			about := subject{string(event.InvolvedObject.UID), event.Reason}
			found[about] = append(found[about], event)
		}
	}
	return found
}

// Limits of the Events about a node that keeps its taint.
const (
	samePause    = 5 * time.Minute
	changedPause = 30 * time.Second
)

// examineTaintEvents checks the Events about a node that keeps its taint.
func (w *world) examineTaintEvents() {
	var last corev1.Event
	count := 0
	for _, event := range w.posted {
		if event.Reason != "CaptureNotReady" || event.FirstTimestamp.Time.Before(w.agent.began) {
			continue
		}
		pause := samePause
		if event.Message != last.Message {
			pause = changedPause
		}
		// Times of Events have seconds. After an answer that got lost, the agent posts an Event again.
		gap := event.FirstTimestamp.Sub(last.FirstTimestamp.Time) + time.Second
		if count > 0 && gap < pause && event.FirstTimestamp.After(w.registered) && time.Since(w.refused) > 2*samePause {
			w.fail("Events: the taint's comes again after %s: %s", gap, event.Message)
		}
		last = event
		count++
	}
	since := latest(w.refused, w.agent.began, w.registered)
	if w.isTainted() && w.apiState == "ok" && w.agent.state == "present" && w.agent.lock != nil && time.Since(since) > 2*time.Minute {
		w.reach("the taint stays for minutes")
		if time.Since(latest(since, last.FirstTimestamp.Time)) > samePause+time.Minute {
			w.fail("Events: none says for %s why the taint stays", time.Since(latest(since, last.FirstTimestamp.Time)))
		}
	}
}

// serveEvent answers requests that create an Event, or change one by a merge patch.
func (w *world) serveEvent(answer http.ResponseWriter, request *http.Request) {
	var event corev1.Event
	name := path.Base(request.URL.Path)
	if request.Method == http.MethodPost {
		w.check(json.NewDecoder(request.Body).Decode(&event))
		name = event.Name
	}
	at := slices.IndexFunc(w.posted, func(e corev1.Event) bool { return name != "" && e.Name == name })
	switch {
	case request.Method == http.MethodPost && at >= 0:
		kubeapi.WriteStatus(answer, request, http.StatusConflict, metav1.StatusReasonAlreadyExists, "already exists")
		return
	case request.Method == http.MethodPost:
		w.posted = append(w.posted, event)
	case at < 0:
		kubeapi.WriteStatus(answer, request, http.StatusNotFound, metav1.StatusReasonNotFound, "not found")
		return
	default:
		w.check(json.NewDecoder(request.Body).Decode(&w.posted[at]))
	}
	answer.Header().Set("Content-Type", "application/json")
	_, _ = answer.Write([]byte(`{"kind":"Event","apiVersion":"v1"}`))
}
