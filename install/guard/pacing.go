// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"time"

	"golang.org/x/time/rate"
)

// Pace of repairs. A pod whose repairs follow one another is repaired this often
// without a pause, and then after pauses that double.
const (
	repairEvery  = time.Second // on the whole node
	repairsAhead = 30

	promptRepairs = 5
	firstPause    = 2 * time.Second
	longestPause  = time.Minute
	calmAfter     = 10 * time.Minute // without a repair
)

// pace limits the repairs on a node. Pods that lose their rules again and again
// have a limit of their own, so that a pod that lost them once never waits for
// those.
type pace struct{ first, repeated *rate.Limiter }

func newPace() pace {
	limiter := func() *rate.Limiter { return rate.NewLimiter(rate.Every(repairEvery), repairsAhead) }
	return pace{first: limiter(), repeated: limiter()}
}

// refusal says why a pod can't be repaired yet; "" where it may, which counts as
// one of the node's repairs.
func (p pace) refusal(of *repairs, now time.Time) string {
	if wait := of.wait(now); wait > 0 {
		return fmt.Sprintf("it was repaired %d times in a row, and is not for another %s", of.count, wait.Round(time.Second))
	}
	limit := p.first
	if of.repeat(now) {
		limit = p.repeated
	}
	if !limit.AllowN(now, 1) {
		return "too many repairs at once on this node, it has to wait"
	}
	return ""
}

// repairs are a pod's, as far as they followed one another.
type repairs struct {
	count int
	last  time.Time
}

// attempted counts a repair, and reports whether it followed another one.
func (r *repairs) attempted(now time.Time) (repeated bool) {
	repeated = r.repeat(now)
	if !repeated {
		r.count = 0
	}
	r.count++
	r.last = now
	return repeated
}

// repeat reports whether a repair now would follow another one.
func (r repairs) repeat(now time.Time) bool { return r.count > 0 && now.Sub(r.last) < calmAfter }

// wait is how long the next repair has to be put off.
func (r repairs) wait(now time.Time) time.Duration {
	if !r.repeat(now) || r.count < promptRepairs {
		return 0
	}
	pause := firstPause
	for range r.count - promptRepairs {
		pause = min(2*pause, longestPause)
	}
	return max(0, pause-now.Sub(r.last))
}
