// SPDX-License-Identifier: Apache-2.0

package nfnetlink

import (
	"fmt"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// These limits bound the objects that are read from a namespace, because a pod with NET_ADMIN can fill
// its tables. They exceed what annotations can request, which is capture.MaxExpanded rules in iptables or,
// in nftables, some 2,500 rules, 900 sets, and two elements for each of capture.MaxExpanded ranges. For each
// part of a list, the kernel starts again at the first object, so reading time grows with the square of the
// length.
const (
	MaxTables   = 1_000
	MaxChains   = 50_000
	MaxRules    = capture.MaxExpanded + 5_000    // of one table or chain that other programs can use, too
	MaxOurRules = 5_000                          // of our table, or of a chain in which FindComment searches
	MaxSets     = 1_000                          // of our table
	MaxElements = 2*capture.MaxExpanded + 30_000 // of all sets of our table

	MaxBytes    = 64 << 20 // of one list, as the kernel sends it
	MaxOurBytes = 4 << 20  // of the rules in our table, or in a chain in which FindComment searches
)

// TooLarge is the error for a namespace that exceeds one of the limits above, or one of packages xtables
// and iptables.
type TooLarge struct {
	What  string // "chains"
	Limit int
}

func (e TooLarge) Error() string {
	return fmt.Sprintf("the network namespace holds more than %d %s", e.Limit, e.What)
}
