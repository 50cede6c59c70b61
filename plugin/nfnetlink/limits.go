// SPDX-License-Identifier: Apache-2.0

package nfnetlink

import (
	"fmt"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// Limits of what is read from a namespace: with NET_ADMIN, a pod can fill its
// tables. They are above what a pod's annotations can request: some 100 rules of
// nftables or capture.MaxExpanded of iptables, and two elements for each range.
// For each part of a list the kernel starts over at the first object, so its
// time grows with the square of the list.
const (
	MaxTables   = 1_000
	MaxChains   = 50_000
	MaxRules    = capture.MaxExpanded + 5_000    // of a table of iptables, with those of other programs
	MaxOurRules = 5_000                          // of our table, or of a chain that is searched for a comment
	MaxSets     = 1_000                          // of our table
	MaxElements = 2*capture.MaxExpanded + 30_000 // of all sets of our table

	MaxBytes    = 64 << 20 // of one list, as the kernel sends it
	MaxOurBytes = 4 << 20  // of our table's rules
)

// TooLarge means that a namespace exceeds a limit.
type TooLarge struct {
	What  string // "chains"
	Limit int
}

func (e TooLarge) Error() string {
	return fmt.Sprintf("the network namespace holds more than %d %s", e.Limit, e.What)
}
