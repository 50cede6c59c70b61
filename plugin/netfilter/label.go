// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// ruleLabel names a rule to people by the comment that says why it is there.
func ruleLabel(comment string) string {
	if comment == "" {
		return "a rule without comment"
	}
	return fmt.Sprintf("rule %q", comment)
}

// elementLabel names a set's element. The kernel keeps a range as two: its
// first key, and the one after its last, marked as an end.
func elementLabel(set, element attributes) string {
	label := "element "
	if flags := element[unix.NFTA_SET_ELEM_FLAGS]; len(flags) == 4 && binary.BigEndian.Uint32(flags)&unix.NFT_SET_ELEM_INTERVAL_END != 0 {
		label = "the end of a range before "
	}
	return label + keyText(set[unix.NFTA_SET_KEY_TYPE], element[unix.NFTA_SET_ELEM_KEY])
}

// keyText spells a key as its set's type does.
func keyText(setType, attribute []byte) string {
	list, err := netlink.UnmarshalAttributes(attribute)
	if err != nil || len(list) == 0 || len(setType) != 4 {
		return "that can't be read"
	}
	key := list[0].Data
	switch binary.BigEndian.Uint32(setType) {
	case nftables.TypeIFName.GetNFTMagic():
		return text(key)
	case nftables.TypeInetService.GetNFTMagic():
		return fmt.Sprint(binary.BigEndian.Uint16(key))
	case nftables.TypeUID.GetNFTMagic(), nftables.TypeGID.GetNFTMagic():
		return fmt.Sprint(binary.NativeEndian.Uint32(key))
	}
	address, _ := netip.AddrFromSlice(key)
	return address.String()
}
