// SPDX-License-Identifier: Apache-2.0

package taint

import "time"

const (
	// grace is what a node's first agent may take before anybody is told.
	grace = 10 * time.Second

	// quiet is between two events that say the same, and brief between others.
	quiet = 5 * time.Minute
	brief = 30 * time.Second
)

// complaint is about a node that keeps its taint.
type complaint struct {
	since, posted time.Time
	said          string
}

// due tells whether it is time for an event, which then counts as posted.
func (c *complaint) due(now time.Time, message string) bool {
	if c.since.IsZero() {
		c.since = now
	}
	pause := quiet
	if message != c.said {
		pause = brief
	}
	if now.Sub(c.since) < grace || now.Sub(c.posted) < pause {
		return false
	}
	c.posted, c.said = now, message
	return true
}
