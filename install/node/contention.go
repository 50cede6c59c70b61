// SPDX-License-Identifier: Apache-2.0

package node

import "time"

// A writer that takes our entry away again and again is answered at once this
// often within the window, and then ever more slowly: two that never give in
// would wear the disk out, and the runtime would load every state in between.
const (
	promptRepairs   = 5
	repairWindow    = 30 * time.Second
	firstBackOff    = time.Second
	longestBackOff  = 30 * time.Second
	peaceAfterQuiet = 2 * time.Minute
)

// contention remembers repairs.
type contention struct {
	repairs []time.Time // within the window
	last    time.Time
	backOff time.Duration // 0 in peace
}

// repaired notes that our entry had to be put back, and tells whether that is
// a fight by now.
func (c *contention) repaired(now time.Time) (fight bool) {
	if c.over(now) {
		c.repairs, c.backOff = nil, 0
	}
	c.last = now
	c.repairs = append(c.repairs, now)
	for len(c.repairs) > 0 && now.Sub(c.repairs[0]) > repairWindow {
		c.repairs = c.repairs[1:]
	}
	switch {
	case c.backOff > 0:
		c.backOff = min(2*c.backOff, longestBackOff)
	case len(c.repairs) > promptRepairs:
		c.backOff = firstBackOff
	}
	return c.backOff > 0
}

// over tells that nobody has taken our entry away for a while.
func (c *contention) over(now time.Time) bool { return now.Sub(c.last) > peaceAfterQuiet }

// wait is how long the next repair should be put off.
func (c *contention) wait(now time.Time) time.Duration {
	return max(0, c.backOff-now.Sub(c.last))
}
