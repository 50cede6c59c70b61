// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"time"

	"golang.org/x/time/rate"
)

// Limits of attempts to repair pods. After repairsWithoutPause attempts in a row, the guard repairs a
// pod only after pauses, each of which is twice as long as the previous one, up to longestPause. Updates
// of a pod have such pauses after the first attempt.
const (
	repairInterval = time.Second // on the whole node; see repairLimits
	repairBurst    = 30

	repairsWithoutPause = 5
	firstPause          = 2 * time.Second
	longestPause        = time.Minute
	resetAfter          = 10 * time.Minute // without an attempt
)

// repairLimits limits the repairs on a node. Repeated repairs have a limit of their own, so that they
// do not delay the first repair of another pod.
type repairLimits struct{ first, repeated *rate.Limiter }

func newRepairLimits() repairLimits {
	limiter := func() *rate.Limiter { return rate.NewLimiter(rate.Every(repairInterval), repairBurst) }
	return repairLimits{first: limiter(), repeated: limiter()}
}

// refusal returns the reason for which a pod can't be repaired yet. If the pod can be repaired, refusal
// counts the repair against the node's limit and returns "".
func (l repairLimits) refusal(s *streak, now time.Time) string {
	if wait := s.backOff(now, repairsWithoutPause); wait > 0 {
		return fmt.Sprintf("%d attempts in a row to repair it; the next one is possible in %s", s.count, wait.Round(time.Second))
	}
	limit := l.first
	if s.isOn(now) {
		limit = l.repeated
	}
	if !limit.AllowN(now, 1) {
		return "too many repairs at once on this node; the next examination retries"
	}
	return ""
}

// streak counts attempts to repair a pod, or to update it, that follow each other within resetAfter.
type streak struct {
	count int
	last  time.Time
}

// add counts an attempt, and reports whether it continues the streak. If not, a new streak begins.
func (s *streak) add(now time.Time) (repeated bool) {
	repeated = s.isOn(now)
	if !repeated {
		s.count = 0
	}
	s.count++
	s.last = now
	return repeated
}

// isOn reports whether an attempt at this time would continue the streak.
func (s streak) isOn(now time.Time) bool { return s.count > 0 && now.Sub(s.last) < resetAfter }

// backOff returns the remaining pause before the next attempt. free is the number of attempts of a
// streak that need no pause.
func (s streak) backOff(now time.Time, free int) time.Duration {
	if !s.isOn(now) || s.count < free {
		return 0
	}
	pause := firstPause
	for range s.count - free {
		pause = min(2*pause, longestPause)
	}
	return max(0, pause-now.Sub(s.last))
}
