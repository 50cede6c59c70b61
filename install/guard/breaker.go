// SPDX-License-Identifier: Apache-2.0

package guard

import "time"

// breaker keeps a peer that does not answer from delaying the pods of a whole node. Its
// zero value lets calls pass.
type breaker struct {
	until time.Time
	fault error // until then
}

// trip refuses calls for a while, because of a fault.
func (b *breaker) trip(pause time.Duration, fault error) {
	b.until, b.fault = time.Now().Add(pause), fault
}

// refusal returns why no call should be made now, or nil.
func (b *breaker) refusal() error {
	if time.Now().Before(b.until) {
		return b.fault
	}
	return nil
}
