// SPDX-License-Identifier: Apache-2.0

package search

import "context"

// tries is how often a sequence may fail to fail.
const tries = 3

// shrink drops actions while the sequence still fails, and returns the shortest with its
// result. That has no fault if the whole sequence did not fail again.
func (w *world) shrink(ctx context.Context, s sequence) (sequence, result, error) {
	short := s
	short.actions = nil
	if result, err := w.fails(ctx, short); err != nil || result.failed() {
		return short, result, err
	}
	last, err := w.fails(ctx, s)
	for i := 0; err == nil && last.failed() && i < len(s.actions); {
		var result result
		if result, err = w.fails(ctx, s.without(i)); result.failed() {
			s, last, i = s.without(i), result, 0
		} else {
			i++
		}
	}
	return s, last, err
}

func (w *world) fails(ctx context.Context, s sequence) (result result, err error) {
	for range tries {
		if result, err = w.try(ctx, s); err != nil || result.failed() {
			break
		}
	}
	return result, err
}
