// SPDX-License-Identifier: Apache-2.0

package nfnetlink

import (
	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// ChainName names a table or one of its chains.
type ChainName struct {
	Family      byte
	Table, Name string
}

// ListNames lists the tables or chains of all families. table and name are the attributes with the names
// of the table and of the listed object.
func ListNames(r *Reader, l Listing, table, name uint16) ([]ChainName, error) {
	return List(r, l, func(m Attributes) ([]ChainName, error) {
		return []ChainName{{m[Family][0], Text(m[table]), Text(m[name])}}, nil
	})
}

func ListChains(r *Reader) ([]ChainName, error) {
	return ListNames(r, Listing{Request: unix.NFT_MSG_GETCHAIN, What: "chains", Limit: MaxChains}, unix.NFTA_CHAIN_TABLE, unix.NFTA_CHAIN_NAME)
}

// FamilyNumber maps each family of iptables to its number in nf_tables.
var FamilyNumber = map[capture.Family]byte{capture.IPv4: unix.NFPROTO_IPV4, capture.IPv6: unix.NFPROTO_IPV6}
