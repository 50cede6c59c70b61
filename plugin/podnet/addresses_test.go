// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"errors"
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"
)

// TestInterruptedList reads a list again that the kernel interrupted, and takes no part
// of one for the whole.
func TestInterruptedList(t *testing.T) {
	t.Parallel()
	interrupted := fmt.Errorf("addresses: %w", netlink.ErrDumpInterrupted)
	other := errors.New("no permission")
	for _, tt := range []struct {
		faults       []error // of the reads, one after the other
		reads, found int
		want         error
	}{
		{[]error{nil}, 1, 2, nil},
		{[]error{interrupted, interrupted, nil}, 3, 2, nil},
		{[]error{interrupted, other}, 2, 0, other},
		{[]error{interrupted, interrupted, interrupted, interrupted, interrupted, nil}, 5, 0, netlink.ErrDumpInterrupted},
	} {
		reads := 0
		found, err := listWhole(func() ([]string, error) {
			fault := tt.faults[reads]
			reads++
			switch {
			case fault == nil:
				return []string{"10.0.0.1", "fd00::1"}, nil
			case errors.Is(fault, netlink.ErrDumpInterrupted):
				return []string{"10.0.0.1"}, fault
			}
			return nil, fault
		})
		if reads != tt.reads || len(found) != tt.found || !errors.Is(err, tt.want) {
			t.Errorf("%v: %d reads, %v, %v", tt.faults, reads, found, err)
		}
	}
}
