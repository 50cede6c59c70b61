// SPDX-License-Identifier: Apache-2.0

package config

// Backend is what puts a Ruleset into the kernel. It has no say in what the
// Ruleset is.
type Backend string

const (
	NFTables       Backend = "nftables"        // by netlink; nothing is executed
	IPTables       Backend = "iptables"        // whatever the host calls iptables
	IPTablesNFT    Backend = "iptables-nft"    // iptables' newer variant, on nf_tables
	IPTablesLegacy Backend = "iptables-legacy" // iptables' older variant
)
