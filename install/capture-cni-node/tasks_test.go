// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"testing"
)

// TestRunTogether ends every task when one fails, and waits for their ends.
func TestRunTogether(t *testing.T) {
	t.Parallel()
	failure := errors.New("failed")
	ended := 0
	err := runTogether(t.Context(),
		untilEnd(func(ctx context.Context) { <-ctx.Done(); ended++ }),
		func(context.Context) error { return failure },
	)
	if !errors.Is(err, failure) || ended != 1 {
		t.Errorf("got %v, %d tasks ended", err, ended)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := runTogether(ctx, untilEnd(func(ctx context.Context) { <-ctx.Done() })); err != nil {
		t.Errorf("at the end of the context: %v", err)
	}
}
