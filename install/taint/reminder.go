// SPDX-License-Identifier: Apache-2.0

package taint

import "time"

const (
	// grace is what a node's first agent may take before an Event is posted.
	grace = 10 * time.Second

	// samePause is between two Events with one message, changedPause between
	// Events with different ones.
	samePause    = 5 * time.Minute
	changedPause = 30 * time.Second
)

// reminder paces the Events about a node that keeps its taint.
type reminder struct {
	since, posted time.Time
	message       string
}

// due reports whether it is time for an Event, which then counts as posted.
func (r *reminder) due(now time.Time, message string) bool {
	if r.since.IsZero() {
		r.since = now
	}
	pause := samePause
	if message != r.message {
		pause = changedPause
	}
	if now.Sub(r.since) < grace || now.Sub(r.posted) < pause {
		return false
	}
	r.posted, r.message = now, message
	return true
}
