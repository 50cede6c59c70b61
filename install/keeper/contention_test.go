// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"slices"
	"testing"
	"time"
)

// TestContention repairs at these times, and wants each answered with this back-off.
func TestContention(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for name, test := range map[string]struct{ repairs, backOff []time.Duration }{
		"prompt at first":                 {[]time.Duration{0, s, 2 * s, 3 * s, 4 * s}, []time.Duration{0, 0, 0, 0, 0}},
		"a writer that is slow enough":    {[]time.Duration{0, 7 * s, 14 * s, 21 * s, 28 * s, 35 * s, 42 * s}, []time.Duration{0, 0, 0, 0, 0, 0, 0}},
		"the window's end is within it":   {[]time.Duration{0, 6 * s, 12 * s, 18 * s, 24 * s, 30 * s}, []time.Duration{0, 0, 0, 0, 0, s}},
		"doubled up to the longest":       {[]time.Duration{0, 0, 0, 0, 0, 0, s, 3 * s, 7 * s, 15 * s, 31 * s, 61 * s}, []time.Duration{0, 0, 0, 0, 0, s, 2 * s, 4 * s, 8 * s, 16 * s, 30 * s, 30 * s}},
		"goes on until it has been quiet": {[]time.Duration{0, 0, 0, 0, 0, 0, 120 * s}, []time.Duration{0, 0, 0, 0, 0, s, 2 * s}},
		"prompt again after it was quiet": {[]time.Duration{0, 0, 0, 0, 0, 0, 120*s + 1, 120*s + 2}, []time.Duration{0, 0, 0, 0, 0, s, 0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			var c contention
			var got []time.Duration
			for _, after := range test.repairs {
				now := began.Add(after)
				contended := c.recordRepair(now)
				got = append(got, c.wait(now))
				if contended != (c.wait(now) > 0) {
					t.Errorf("at %s: contended: %v, a back-off of %s", after, contended, c.wait(now))
				}
			}
			if !slices.Equal(got, test.backOff) {
				t.Errorf("got back-offs of %s, want %s", got, test.backOff)
			}
		})
	}
}

// TestContentionPasses counts the time since the last repair.
func TestContentionPasses(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var c contention
	if !c.isOver(now) || c.wait(now) != 0 {
		t.Errorf("before any repair: over %v, wait %s", c.isOver(now), c.wait(now))
	}
	for range promptRepairs + 1 {
		c.recordRepair(now)
	}
	for _, test := range []struct {
		after, wait time.Duration
		over        bool
	}{
		{0, minBackOff, false},
		{400 * time.Millisecond, 600 * time.Millisecond, false},
		{minBackOff, 0, false},
		{time.Minute, 0, false},
		{quietPeriod, 0, false},
		{quietPeriod + 1, 0, true},
	} {
		at := now.Add(test.after)
		if c.wait(at) != test.wait || c.isOver(at) != test.over {
			t.Errorf("after %s: wait %s, over %v; want %s, %v", test.after, c.wait(at), c.isOver(at), test.wait, test.over)
		}
	}
}
