// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestAlive holds for five intervals after a check of the node.
func TestAlive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k, _, _ := loggingKeeper()
		expect := func(when string, want bool) {
			t.Helper()
			if k.Alive() != want {
				t.Errorf("%s: alive is %v", when, !want)
			}
		}
		expect("at the start", true)
		for range 3 {
			time.Sleep(5*resyncInterval - time.Second)
			expect("just before the end", true)
			k.setReport(Report{})
		}
		time.Sleep(5 * resyncInterval)
		expect("without a check for five intervals", false)
		k.setReport(Report{})
		expect("after a check", true)
	})
}
