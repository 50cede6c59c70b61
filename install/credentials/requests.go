// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// The agent pauses between requests for tokens, because all nodes send their requests to the same API
// server. minClockFault is the smallest difference of clocks that is a fault.
const (
	minRequestPause = time.Second
	maxRequestPause = time.Minute
	longPause       = 5 * time.Minute // the longest pause after a rejected token, and the shortest after a fault of the clocks
	minClockFault   = time.Minute
)

// requests decides when the next token may be requested.
type requests struct {
	issued           int       // number of all tokens
	failed, rejected int       // in a row
	next             time.Time // earliest time of the next request
	err              error     // of the last request
	clocks           error     // the fault of the clocks that the last token shows, or nil

	jitter func(limit time.Duration) time.Duration // nil for rand.N
}

func (r *requests) isDue(now time.Time) bool { return !now.Before(r.next) }

func (r *requests) recordFailure(now time.Time, err error) {
	r.failed++
	r.err = err
	r.next = now.Add(r.pause(r.failed, maxRequestPause))
}

// recordToken records a new token. rejected says whether the API server had rejected the previous one.
func (r *requests) recordToken(now time.Time, valid Lifetime, rejected bool) {
	r.issued++
	r.failed, r.err, r.clocks, r.next = 0, nil, valid.clockFault(now), time.Time{}
	if rejected {
		r.rejected++
		r.next = now.Add(r.pause(r.rejected, longPause))
	}
	if r.clocks != nil {
		r.next = now.Add(longPause + r.random(longPause/10))
	}
}

// fault returns the error of the last request or, if it succeeded, the fault of the clocks.
func (r *requests) fault() error {
	if r.err != nil {
		return r.err
	}
	return r.clocks
}

// pause returns a random pause, whose expected length doubles with each attempt up to a limit.
func (r *requests) pause(attempts int, limit time.Duration) time.Duration {
	longest := limit
	if attempts < 16 {
		longest = min(limit, minRequestPause<<attempts)
	}
	return longest/2 + r.random(longest/2)
}

func (r *requests) random(limit time.Duration) time.Duration {
	if r.jitter != nil {
		return r.jitter(limit)
	}
	return rand.N(limit)
}

// clockFault returns an error if the times of a token show that this node's clock is wrong by at least
// half of the token's lifetime, and by at least minClockFault. A new token would then be due for renewal
// at once, or only after its expiry.
func (l Lifetime) clockFault(now time.Time) error {
	limit := max(minClockFault, l.Expires.Sub(l.Issued)/2)
	ahead := now.Sub(l.Issued)
	switch {
	case ahead >= limit:
		return fmt.Errorf("this node's clock is %s ahead of the API server's: check the clocks of both", ahead.Round(time.Second))
	case -ahead >= limit:
		return fmt.Errorf("this node's clock is %s behind the API server's: check the clocks of both", -ahead.Round(time.Second))
	}
	return nil
}
