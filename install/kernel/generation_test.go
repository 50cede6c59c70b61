// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestGenerationDeadline expects a read to fail after the end of its context.
func TestGenerationDeadline(t *testing.T) {
	t.Parallel()
	host := lab.StartHost(t)
	ended, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	canceled, cancelNow := context.WithCancel(t.Context())
	cancelNow()
	for _, ctx := range []context.Context{ended, canceled} {
		if err := host.Do(func() error { _, err := generation(ctx); return err }); !errors.Is(err, ctx.Err()) {
			t.Errorf("got %v, want %v", err, ctx.Err())
		}
	}
}
