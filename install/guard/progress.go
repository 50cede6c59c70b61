// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"sync/atomic"
	"time"
)

// progress is the time of the last whole round: every examination that was due by then
// was made. Any goroutine may read it.
type progress struct{ last atomic.Pointer[time.Time] }

// Limits of the age of a whole round, beyond which the guard is stuck.
const (
	maxRounds   = 5
	maxRoundAge = 5 * time.Minute // for shorter rounds
)

// update sets the time of the last whole round: now, or the time at which the pod that
// has waited longest became due.
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

// Stuck returns an error if the last whole round is older than five rounds and than
// five minutes. A guard whose container runtime or agent does not answer is not stuck: a
// restart would lose what it knows.
func (g *Guard) Stuck() error {
	limit := max(maxRounds*g.settings.Round, maxRoundAge)
	if age := time.Since(*g.progress.last.Load()); age > limit {
		return fmt.Errorf("the last whole round of examinations was %s ago: expected at most %s", age.Round(time.Second), limit)
	}
	return nil
}
