// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"
	"time"
)

// The agent restores the entry immediately until it has done so more than promptRepairs times within
// repairWindow, and then with a back-off. Without the back-off, the agent and another program that
// removes the entry would rewrite the file without a pause, and the runtime would load each version. The
// agent reports a contention while it has made more than promptRepairs repairs within reportWindow, the
// last of them within quietPeriod.
const (
	promptRepairs = 5
	repairWindow  = 30 * time.Second
	reportWindow  = 10 * time.Minute
	minBackOff    = time.Second
	maxBackOff    = 30 * time.Second
	quietPeriod   = 2 * time.Minute

	// writerPause is the time without a change of the directory after which the agent assumes that the
	// other program has stopped. The agent then restores the entry even before the back-off ends.
	writerPause = 2 * time.Second
)

// contention contains recent repairs, and the back-off that results from them.
type contention struct {
	repairs []time.Time // those within reportWindow
	last    time.Time
	backOff time.Duration // 0 for no back-off
}

// recordRepair records that the agent restored the entry, and reports whether the back-off grew.
func (c *contention) recordRepair(now time.Time) (grew bool) {
	if c.isOver(now) {
		c.repairs, c.backOff = nil, 0
	}
	c.last = now
	c.repairs = append(c.repairsWithin(reportWindow, now), now)
	before := c.backOff
	switch {
	case c.backOff > 0:
		c.backOff = min(2*c.backOff, maxBackOff)
	case len(c.repairsWithin(repairWindow, now)) > promptRepairs:
		c.backOff = minBackOff
	}
	return c.backOff > before
}

// repairsWithin returns the times of the repairs within the last period.
func (c *contention) repairsWithin(period time.Duration, now time.Time) []time.Time {
	return slices.DeleteFunc(slices.Clone(c.repairs), func(at time.Time) bool { return now.Sub(at) > period })
}

// isContended reports whether another program keeps removing the entry.
func (c *contention) isContended(now time.Time) bool {
	return !c.isOver(now) && len(c.repairsWithin(reportWindow, now)) > promptRepairs
}

// isOver reports whether the last repair was longer ago than quietPeriod, so that a contention has
// ended.
func (c *contention) isOver(now time.Time) bool { return now.Sub(c.last) > quietPeriod }

// wait returns the time between a change of the directory and the next repair. It is zero without a
// back-off, and otherwise writerPause or, if that is shorter, the rest of the back-off. The caller calls
// wait again after each further change.
func (c *contention) wait(now time.Time) time.Duration {
	return max(0, min(writerPause, c.backOff-now.Sub(c.last)))
}
