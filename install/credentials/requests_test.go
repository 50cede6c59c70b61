// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"errors"
	"testing"
	"time"
)

// TestPauses lets requests fail: the pauses double up to a minute, and no two nodes
// have the same.
func TestPauses(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var ours, others requests
	differ := 0
	for i, longest := range []time.Duration{2, 4, 8, 16, 32, 60, 60, 60, 60, 60, 60, 60, 60, 60, 60, 60, 60, 60, 60, 60} {
		longest *= time.Second
		for _, r := range []*requests{&ours, &others} {
			r.recordFailure(now, errors.New("no API server"))
			if wait := r.next.Sub(now); wait < longest/2 || wait > longest {
				t.Errorf("failure %d: a pause of %s, want %s to %s", i+1, wait, longest/2, longest)
			}
			if r.isDue(now.Add(longest/2-1)) || !r.isDue(now.Add(longest)) || r.fault() == nil {
				t.Errorf("failure %d: due at %s, %v", i+1, r.next.Sub(now), r.fault())
			}
		}
		if ours.next != others.next {
			differ++
		}
	}
	if differ == 0 {
		t.Error("the pauses are no random ones")
	}
	ours.recordToken(now, Lifetime{now, now.Add(time.Hour)}, false)
	if !ours.isDue(now) || ours.fault() != nil || ours.failed != 0 {
		t.Errorf("after a token: %+v", ours)
	}
}

// TestRejectedAgain has the API server reject each new token.
func TestRejectedAgain(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var ours requests
	valid := Lifetime{now, now.Add(time.Hour)}
	for range 20 {
		ours.recordToken(now, valid, true)
	}
	if wait := ours.next.Sub(now); wait < longPause/2 {
		t.Errorf("after 20 rejected tokens: a pause of %s", wait)
	}
}

// TestClocks has tokens of API servers whose clocks differ from the node's.
func TestClocks(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for ahead, fault := range map[time.Duration]bool{
		0: false, 5 * time.Minute: false, -5 * time.Minute: false, 11 * time.Hour: false,
		12 * time.Hour: true, -12 * time.Hour: true, // half of the lifetime
		13 * time.Hour: true, -13 * time.Hour: true, 100 * time.Hour: true, -100 * time.Hour: true,
	} {
		issued := now.Add(-ahead)
		valid := Lifetime{issued, issued.Add(24 * time.Hour)}
		var ours requests
		ours.recordToken(now, valid, false)
		if got := ours.fault() != nil; got != fault || ours.isDue(now.Add(longPause-1)) == fault || !ours.isDue(now.Add(2*longPause)) {
			t.Errorf("%s ahead: %v, next %s", ahead, ours.fault(), ours.next.Sub(now))
		}
		ours.clocks = valid.clockFault(issued) // the clock is right again
		if ours.fault() != nil {
			t.Errorf("%s ahead, and right again: %v", ahead, ours.fault())
		}
	}
	short := Lifetime{now.Add(-2 * time.Second), now.Add(2 * time.Second)}
	if err := short.clockFault(now); err != nil {
		t.Errorf("a token for seconds: %v", err)
	}
}
