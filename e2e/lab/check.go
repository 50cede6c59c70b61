// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"testing"
	"time"
)

// Check fails and ends the test if err is not nil.
func Check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Patience is the longest time that a test waits for a condition. It is long because the machine may be
// busy, and delays only the report of a failure.
const Patience = 3 * time.Minute

// Eventually calls condition until it returns nil, and fails the test after Patience.
func Eventually(t testing.TB, condition func() error) {
	t.Helper()
	pause := 5 * time.Millisecond // grows while the test waits, because some conditions start programs
	for began := time.Now(); ; time.Sleep(pause) {
		err := condition()
		if err == nil {
			return
		}
		waited := time.Since(began)
		if waited > Patience {
			t.Fatalf("not within %s: %v", Patience, err)
		}
		pause = min(2*pause, max(80*time.Millisecond, waited/10), time.Second/2)
	}
}
