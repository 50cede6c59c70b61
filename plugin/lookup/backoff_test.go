// SPDX-License-Identifier: Apache-2.0

package lookup

import (
	"testing"
	"time"
)

// TestBackoff expects pauses that double up to a bound, spread by half of their length to
// both sides, and none that is shorter than what an API server asks for.
func TestBackoff(t *testing.T) {
	t.Parallel()
	want := []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond, 1600 * time.Millisecond, 2 * time.Second, 2 * time.Second}
	var shortest, longest [7]time.Duration
	for round := range 1000 {
		retries := backoff(firstBackoff)
		for i, middle := range want {
			got := retries.next(0)
			if got < middle/2 || got >= middle*3/2 {
				t.Fatalf("pause %d is %s", i, got)
			}
			if round == 0 || got < shortest[i] {
				shortest[i] = got
			}
			longest[i] = max(longest[i], got)
		}
	}
	for i, middle := range want {
		if longest[i]-shortest[i] < middle*9/10 { // by chance once in 10^40
			t.Errorf("pause %d is between %s and %s: expected it around %s", i, shortest[i], longest[i], middle)
		}
	}
	retries := backoff(firstBackoff)
	if got := retries.next(time.Minute); got != time.Minute {
		t.Errorf("the API server asks for a minute, and the pause is %s", got)
	}
	if got := retries.next(time.Millisecond); got < 100*time.Millisecond {
		t.Errorf("the API server asks for a millisecond, and the second pause is %s", got)
	}
}

// TestRetryAfterOfBoth expects the longer of what the agent and the API server ask for.
func TestRetryAfterOfBoth(t *testing.T) {
	t.Parallel()
	short, long := &Fault{RetryAfter: time.Second}, &Fault{RetryAfter: time.Minute}
	for _, failed := range []failedAttempt{{short, long}, {long, short}, {long, nil}, {nil, long}} {
		if got := failed.retryAfter(); got != time.Minute {
			t.Errorf("%+v: %s", failed, got)
		}
	}
	if got := (failedAttempt{}).retryAfter(); got != 0 {
		t.Errorf("without a fault: %s", got)
	}
}
