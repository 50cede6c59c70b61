// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"sync/atomic"
	"time"
)

// progress contains the time of the last complete round. All examinations that were due by then are
// done. Any goroutine may read it.
type progress struct{ last atomic.Pointer[time.Time] }

// Limits for the age of the last complete round. Beyond both, the guard is stuck.
const (
	maxRounds   = 5
	maxRoundAge = 5 * time.Minute // for short rounds
)

// update sets and returns the time of the last complete round. That is now or, if pods wait for their
// examination, the time at which the first of them became due.
func (p *progress) update(watched map[string]*watched, now time.Time) time.Time {
	last := now
	for _, w := range watched {
		due := w.next
		if due.IsZero() {
			due = w.listed
		}
		if due.Before(last) {
			last = due
		}
	}
	p.last.Store(&last)
	return last
}

// Stuck returns an error if the last complete round is older than five rounds and older than five
// minutes. It returns nil for a guard whose container runtime or agent does not answer, because a
// restart would only lose the guard's knowledge of the pods.
func (g *Guard) Stuck() error {
	limit := max(maxRounds*g.settings.Round, maxRoundAge)
	if age := time.Since(*g.progress.last.Load()); age > limit {
		return fmt.Errorf("the last whole round of examinations was %s ago: expected at most %s", age.Round(time.Second), limit)
	}
	return nil
}
