// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capture-cni/capture-cni/install/metrics"
	"github.com/capture-cni/capture-cni/install/report"
)

// Causes: a dropped notice, and a failed post, whose notices the Event's next post may deliver.
const (
	causeFull  = "full"
	causeError = "error"
)

const (
	eventDropped = "CaptureEventsDropped"

	// summaryInterval is the shortest time between two summaries. summaryCheck is the time between two
	// checks whether a summary is due.
	summaryInterval = 5 * time.Minute
	summaryCheck    = 10 * time.Second
)

// droppedEvents counts the dropped notices and the failed posts since the last summary.
type droppedEvents struct {
	total *prometheus.CounterVec

	mu      sync.Mutex
	byCause map[string]int
	first   time.Time // time of the first of these notices and posts
	last    time.Time // time of the last summary
}

func newDroppedEvents(f *metrics.Factory) *droppedEvents {
	help := fmt.Sprintf("dropped messages and failed posts, by `cause` "+
		"(full: %d Events were waiting; error: posting failed)", queueLength)
	return &droppedEvents{total: f.Counters("events_dropped_total", help, "cause", causeFull, causeError), byCause: map[string]int{}}
}

func (d *droppedEvents) count(cause string, now time.Time) {
	d.total.WithLabelValues(cause).Inc()
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.byCause) == 0 {
		d.first = now
	}
	d.byCause[cause]++
}

// summary returns a message about the notices that were dropped, and the posts that failed, since the
// last summary, or "" if no summary is due.
func (d *droppedEvents) summary(now time.Time) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.byCause) == 0 || now.Sub(d.first) < summaryCheck || now.Sub(d.last) < summaryInterval {
		return ""
	}
	full, failed := d.byCause[causeFull], d.byCause[causeError]
	message := report.EventsDropped.Mark(fmt.Sprintf("%d Events about pods of this node could not be posted since %s: "+
		"%d because %d others were waiting, %d because posting them failed. See the agent's log, and the metrics of agent and guard",
		full+failed, d.first.UTC().Format(time.RFC3339), full, queueLength, failed))
	clear(d.byCause)
	d.last = now
	return message
}

// postSummary logs and posts a summary if one is due. If posting fails, or the node's name is
// unknown, only the log contains the summary.
func (e *Events) postSummary(ctx context.Context, now time.Time) {
	message := e.dropped.summary(now)
	if message == "" {
		return
	}
	e.log.Warn(message)
	if e.node == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, postTimeout)
	defer cancel()
	node := corev1.ObjectReference{Kind: "Node", Name: e.node, UID: types.UID(e.node)} // the kubelet's Events have the same UID
	event := e.event(node, metav1.NamespaceDefault, eventDropped, now)
	event.Message, event.LastTimestamp, event.Count = message, event.FirstTimestamp, 1
	if err := e.api.CreateEvent(ctx, &event); err != nil {
		e.log.Warn("posting a summary of dropped Events failed", "error", err)
	}
}
