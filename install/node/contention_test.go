// SPDX-License-Identifier: Apache-2.0

package node

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
				before := c.backOff
				if grew := c.recordRepair(began.Add(after)); grew != (c.backOff > before) {
					t.Errorf("at %s: the back-off of %s, after one of %s, grew: %v", after, c.backOff, before, grew)
				}
				got = append(got, c.backOff)
			}
			if !slices.Equal(got, test.backOff) {
				t.Errorf("got back-offs of %s, want %s", got, test.backOff)
			}
		})
	}
}

// TestContentionIsReported repairs at intervals, and wants it reported at the last repair or
// not: a writer that is slow enough for prompt repairs is reported as well.
func TestContentionIsReported(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		interval time.Duration
		repairs  int
		want     bool
	}{
		"five at once":         {0, promptRepairs, false},
		"six at once":          {0, promptRepairs + 1, true},
		"every 7 s, for 28 s":  {7 * time.Second, 5, false},
		"every 7 s, for 35 s":  {7 * time.Second, 6, true},
		"every 7 s, for hours": {7 * time.Second, 1000, true},
		"every 100 s":          {100 * time.Second, 20, true},
		"every 119 s":          {119 * time.Second, 20, true},
		"every 121 s":          {121 * time.Second, 20, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := time.Now()
			var c contention
			for i := range test.repairs {
				if i > 0 {
					now = now.Add(test.interval)
				}
				c.recordRepair(now)
			}
			if got := c.isContended(now); got != test.want {
				t.Errorf("reported: %v", got)
			}
			if at := now.Add(quietPeriod + 1); c.isContended(at) {
				t.Error("reported after it was quiet")
			}
			if len(c.repairs) > int(reportWindow/max(time.Second, test.interval))+1 {
				t.Errorf("%d repairs are kept", len(c.repairs))
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

// TestWriterStops has a writer with a long back-off behind it change the directory. A repair
// follows each change by writerPause, unless the next change comes before, and the last repair
// by the back-off in any case.
func TestWriterStops(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		interval time.Duration // between changes
		changes  int           // after which the writer stops
		want     time.Duration // of the repair, since the last one
	}{
		"stops at once":            {time.Second, 1, time.Second + writerPause},
		"stops after ten changes":  {time.Second, 10, 10*time.Second + writerPause},
		"pauses between changes":   {3 * time.Second, 10, 3*time.Second + writerPause},
		"stops before the end":     {time.Second, 29, maxBackOff},
		"never stops":              {time.Second, 1000, maxBackOff},
		"never stops, and is fast": {10 * time.Millisecond, 100_000, maxBackOff},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			last := time.Now()
			c := contention{last: last, backOff: maxBackOff}
			var due time.Time
			for i := range test.changes {
				change := last.Add(time.Duration(i+1) * test.interval)
				if !due.IsZero() && !due.After(change) {
					break
				}
				due = change.Add(c.wait(change))
			}
			if got := due.Sub(last); got != test.want {
				t.Errorf("the repair is due %s after the last one, want %s", got, test.want)
			}
		})
	}
}
