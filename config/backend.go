// SPDX-License-Identifier: Apache-2.0

package config

// Backend is the way in which a Ruleset is written to the kernel. All backends
// write the same rules.
type Backend string

const (
	NFTables       Backend = "nftables"        // nf_tables over netlink; executes no program
	IPTables       Backend = "iptables"        // the variant that the node's iptables command is
	IPTablesNFT    Backend = "iptables-nft"    // iptables on nf_tables
	IPTablesLegacy Backend = "iptables-legacy" // iptables on x_tables
)
