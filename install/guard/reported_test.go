// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"testing"

	"github.com/capture-cni/capture-cni/install/terms"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// TestIsReported wants one record for each outdated pod: sent by this guard, or by an
// earlier one.
func TestIsReported(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		found, before terms.State
		reported      bool
		queued        int
		want          bool
	}{
		{terms.Outdated, "", false, 0, false}, // the record is added after this
		{terms.Outdated, terms.Outdated, false, 0, true},
		{terms.Outdated, terms.Outdated, false, 1, false},
		{terms.Outdated, terms.Outdated, true, 1, true},
		{terms.Outdated, "", true, 0, true}, // by an earlier guard
		{terms.Outdated, terms.Unknown, false, 0, false},
		{terms.Unknown, terms.Outdated, true, 0, true},
		{terms.Unknown, terms.Outdated, false, 0, false},
		{terms.Captured, terms.Outdated, true, 0, false},
		{terms.Drifted, terms.Outdated, true, 0, false},
	} {
		g := &Guard{outbox: outbox{queue: make([]record.Record, tt.queued)}}
		if got := g.isReported(Finding{State: tt.found}, Finding{State: tt.before}, tt.reported); got != tt.want {
			t.Errorf("%+v: got %v", tt, got)
		}
	}
}
