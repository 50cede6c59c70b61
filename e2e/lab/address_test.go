// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"net"
	"os/exec"
	"sync"
	"testing"
)

// TestFreeAddress listens at each address right away, while other goroutines start child processes.
func TestFreeAddress(t *testing.T) {
	RequireTime(t)
	ctx := t.Context()
	var starters sync.WaitGroup
	done := make(chan struct{})
	for range 4 {
		starters.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					_ = exec.CommandContext(ctx, "true").Run()
				}
			}
		})
	}
	for range 2000 {
		address, err := FreeAddress()
		if err != nil {
			t.Fatal(err)
		}
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Error(err)
			break
		}
		_ = listener.Close()
	}
	close(done)
	starters.Wait()
}
