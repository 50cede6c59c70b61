// SPDX-License-Identifier: Apache-2.0

package terms

// Mode is how the plugin is added to the runtime's CNI configuration.
type Mode string

const (
	// Auto is DropIn if the runtime reports that it has loaded the drop-in, else Insert.
	Auto Mode = "auto"
	// DropIn writes a file of the agent's own next to the primary conflist.
	DropIn Mode = "dropin"
	// Insert writes the entry into the conflist that the runtime loads.
	Insert Mode = "insert"
	// Owned writes a conflist that embeds the primary one and sorts before all others.
	Owned Mode = "owned"
	// Multus writes a configuration that network attachments refer to.
	Multus Mode = "multus"
	// MultusChain writes the entry into the auxiliary chain of Multus.
	MultusChain Mode = "multus-chain"
)

// UnderMultus reports whether Multus calls the plugin. It passes on no annotations, and
// the runtime does not report what Multus has loaded.
func (m Mode) UnderMultus() bool { return m == Multus || m == MultusChain }
