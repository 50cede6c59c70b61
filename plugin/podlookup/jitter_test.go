// SPDX-License-Identifier: Apache-2.0

package podlookup

import (
	"testing"
	"time"
)

// TestJitter expects pauses from half to one and a half of the back-off.
func TestJitter(t *testing.T) {
	t.Parallel()
	seen := map[time.Duration]bool{}
	for range 1000 {
		got := jitter(firstBackoff)
		if got < firstBackoff/2 || got >= 3*firstBackoff/2 {
			t.Fatalf("got %s", got)
		}
		seen[got] = true
	}
	if len(seen) < 100 {
		t.Errorf("%d different pauses in 1000", len(seen))
	}
}
