// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Generation counts what was committed to nf_tables in the calling thread's
// namespace, by whomever: as long as it is the same, so is every rule.
func Generation() (uint32, error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return 0, fmt.Errorf("opening netlink: %w", err)
	}
	defer conn.Close()
	replies, err := conn.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETGEN, Flags: netlink.Request},
		Data:   []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0},
	})
	if err != nil {
		return 0, fmt.Errorf("asking for the generation of the rules: %w", err)
	}
	messages, err := parseMessages(replies)
	if err != nil {
		return 0, err
	}
	for _, message := range messages {
		if id := message[unix.NFTA_GEN_ID]; len(id) == 4 {
			return binary.BigEndian.Uint32(id), nil
		}
	}
	return 0, errors.New("the kernel does not tell the generation of the rules")
}
