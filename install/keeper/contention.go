// SPDX-License-Identifier: Apache-2.0

package keeper

import "time"

// The agent restores an entry at once up to promptRepairs times within repairWindow,
// then with a back-off: otherwise the agent and the other program would rewrite the
// file without a pause, and the runtime would load each version.
const (
	promptRepairs = 5
	repairWindow  = 30 * time.Second
	minBackOff    = time.Second
	maxBackOff    = 30 * time.Second
	quietPeriod   = 2 * time.Minute
)

// contention is the history of repairs, and the back-off that follows from it.
type contention struct {
	repairs []time.Time // within the window
	last    time.Time
	backOff time.Duration // 0 without contention
}

// recordRepair records that the agent restored the entry, and reports whether the entry
// is contended.
func (c *contention) recordRepair(now time.Time) (contended bool) {
	if c.isOver(now) {
		c.repairs, c.backOff = nil, 0
	}
	c.last = now
	c.repairs = append(c.repairs, now)
	for len(c.repairs) > 0 && now.Sub(c.repairs[0]) > repairWindow {
		c.repairs = c.repairs[1:]
	}
	switch {
	case c.backOff > 0:
		c.backOff = min(2*c.backOff, maxBackOff)
	case len(c.repairs) > promptRepairs:
		c.backOff = minBackOff
	}
	return c.backOff > 0
}

// isOver reports whether the last repair is longer ago than quietPeriod.
func (c *contention) isOver(now time.Time) bool { return now.Sub(c.last) > quietPeriod }

// wait returns the time until the next repair is due.
func (c *contention) wait(now time.Time) time.Duration {
	return max(0, c.backOff-now.Sub(c.last))
}
