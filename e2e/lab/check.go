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
	pause := 5 * time.Millisecond // doubled up to 80 ms: some conditions start programs
	for deadline := time.Now().Add(Patience); ; time.Sleep(pause) {
		err := condition()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %v", Patience, err)
		}
		pause = min(2*pause, 80*time.Millisecond)
	}
}
