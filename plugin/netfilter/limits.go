// SPDX-License-Identifier: Apache-2.0

package netfilter

import "fmt"

// Limits of what is read of a namespace: with NET_ADMIN, a pod can fill its
// tables. They are several times what a pod's annotations, 256 KiB in all, can
// ask for: some 100 rules of nftables or 40,000 of iptables, 80,000 elements.
// The kernel begins each part of a list at the list's first object again, so
// that its time grows with the square of what is read.
const (
	maxTables   = 1_000
	maxChains   = 50_000
	maxRules    = 65_000  // of a table of iptables
	maxOurRules = 5_000   // of our table, or with a comment that is looked for
	maxSets     = 1_000   // of our table
	maxElements = 150_000 // of all sets of our table

	maxBytes    = 64 << 20 // of one list, as the kernel sends it
	maxOurBytes = 4 << 20  // of our table's rules
	maxLegacy   = 32 << 20 // of a table of iptables' older variant
	maxSaved    = 64 << 20 // that a program of iptables prints
	maxSaid     = 64 << 10 // that it says of what failed
)

// TooLarge means that a namespace holds more of something than is read of it.
type TooLarge struct {
	What string // "chains"
	Most int
}

func (e TooLarge) Error() string {
	return fmt.Sprintf("the network namespace holds more than %d %s", e.Most, e.What)
}
