// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"testing"

	"github.com/capture-cni/capture-cni/plugin/record"
)

// TestIsReported wants one record for each outdated pod: sent by this guard, or by an
// earlier one.
func TestIsReported(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		found, before State
		reported      bool
		queued        int
		want          bool
	}{
		{Outdated, "", false, 0, false}, // the record is added after this
		{Outdated, Outdated, false, 0, true},
		{Outdated, Outdated, false, 1, false},
		{Outdated, Outdated, true, 1, true},
		{Outdated, "", true, 0, true}, // by an earlier guard
		{Outdated, Unknown, false, 0, false},
		{Unknown, Outdated, true, 0, true},
		{Unknown, Outdated, false, 0, false},
		{Captured, Outdated, true, 0, false},
		{Drifted, Outdated, true, 0, false},
	} {
		g := &Guard{outbox: outbox{queue: make([]record.Record, tt.queued)}}
		if got := g.isReported(Finding{State: tt.found}, Finding{State: tt.before}, tt.reported); got != tt.want {
			t.Errorf("%+v: got %v", tt, got)
		}
	}
}
