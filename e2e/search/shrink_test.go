// SPDX-License-Identifier: Apache-2.0

package search

import "context"

// tries is how often a sequence may fail to fail.
const tries = 3

// shrink drops actions while the sequence still fails. Without faults, it never failed again.
func (w *world) shrink(ctx context.Context, s sequence) (sequence, []string, error) {
	bare := s
	bare.actions = nil
	if faults, err := w.fails(ctx, bare); err != nil || faults != nil {
		return bare, faults, err
	}
	faults, err := w.fails(ctx, s)
	for i := 0; err == nil && faults != nil && i < len(s.actions); {
		var still []string
		if still, err = w.fails(ctx, s.without(i)); still != nil {
			s, faults, i = s.without(i), still, 0
		} else {
			i++
		}
	}
	return s, faults, err
}

func (w *world) fails(ctx context.Context, s sequence) ([]string, error) {
	for range tries {
		if result, err := w.try(ctx, s); err != nil || len(result.faults) > 0 {
			return result.faults, err
		}
	}
	return nil, nil
}
