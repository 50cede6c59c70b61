// SPDX-License-Identifier: Apache-2.0

package netfilter

import "fmt"

// Limits of what is read from a namespace: with NET_ADMIN, a pod can fill its
// tables. They are several times what a pod's annotations, 256 KiB in all, can
// request: some 100 rules of nftables or 40,000 of iptables, 80,000 elements.
// For each part of a list the kernel starts over at the first object, so its
// time grows with the square of the list.
const (
	maxTables   = 1_000
	maxChains   = 50_000
	maxRules    = 65_000  // of a table of iptables
	maxOurRules = 5_000   // of our table, or of a chain that is searched for a comment
	maxSets     = 1_000   // of our table
	maxElements = 150_000 // of all sets of our table

	maxBytes    = 64 << 20 // of one list, as the kernel sends it
	maxOurBytes = 4 << 20  // of our table's rules
	maxLegacy   = 32 << 20 // of a table of iptables-legacy
	maxStdout   = 64 << 20 // that a program of iptables prints to stdout
	maxStderr   = 64 << 10 // that it prints to stderr
)

// TooLarge means that a namespace exceeds a limit.
type TooLarge struct {
	What  string // "chains"
	Limit int
}

func (e TooLarge) Error() string {
	return fmt.Sprintf("the network namespace holds more than %d %s", e.Limit, e.What)
}
