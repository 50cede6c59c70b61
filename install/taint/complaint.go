// SPDX-License-Identifier: Apache-2.0

package taint

import "time"

const (
	// grace is what a node's first agent may take before anybody is told.
	grace = 5 * time.Second

	// quiet is between two events.
	quiet = 5 * time.Minute
)

// complaint is about a node that keeps its taint.
type complaint struct{ since, posted time.Time }

// due tells whether it is time for an event, which then counts as posted.
func (c *complaint) due(now time.Time) bool {
	if c.since.IsZero() {
		c.since = now
	}
	if now.Sub(c.since) < grace || now.Sub(c.posted) < quiet {
		return false
	}
	c.posted = now
	return true
}
