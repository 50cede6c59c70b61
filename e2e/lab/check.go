// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"testing"
	"time"
)

// Check ends the test at an error.
func Check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Patience is how long a test waits for what has to happen. It is for a busy machine, and
// decides only how soon a failure is reported.
const Patience = 3 * time.Minute

// Eventually repeats a condition until it returns no error, for at most Patience.
func Eventually(t testing.TB, condition func() error) {
	t.Helper()
	pause := 5 * time.Millisecond // grows with the time waited: some conditions start programs
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
