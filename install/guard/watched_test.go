// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"slices"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/install/cri"
)

// TestDue wants new pods first, then those that have waited longest, and no pod before its time.
func TestDue(t *testing.T) {
	t.Parallel()
	now := time.Now()
	g := &Guard{watched: map[string]*watched{}}
	for id, next := range map[string]time.Time{
		"a": now.Add(-time.Second), "b": now.Add(-time.Minute), "c": now.Add(-time.Hour), "d": now,
		"e": now.Add(time.Nanosecond), "f": {}, "g": {}, "h": now.Add(-time.Minute),
	} {
		g.watched[id] = &watched{sandbox: cri.Sandbox{ID: id}, next: next}
	}
	var got []string
	for _, w := range g.due(now) {
		got = append(got, w.sandbox.ID)
	}
	if want := []string{"f", "g", "c", "b", "h", "a", "d"}; !slices.Equal(got, want) {
		t.Errorf("the guard examines %q, want %q", got, want)
	}
}
