// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// ruleLabel names a rule in a Diff by its comment.
func ruleLabel(comment string) string {
	if comment == "" {
		return "a rule without comment"
	}
	return fmt.Sprintf("rule %q", comment)
}

// elementLabel names an element in a Diff by its set's type and its content. The
// kernel keeps a range as two elements: its first key, and the key after its
// last, with a flag.
func elementLabel(keyType, content string) string {
	if len(content) < flagsLength {
		return "element that can't be read"
	}
	key, flags := []byte(content[:len(content)-flagsLength]), []byte(content[len(content)-flagsLength:])
	label := "element "
	if binary.BigEndian.Uint32(flags)&unix.NFT_SET_ELEM_INTERVAL_END != 0 {
		label = "the end of a range before "
	}
	return label + keyText([]byte(keyType), key)
}

// keyText returns a key as text, by its set's type.
func keyText(keyType, key []byte) string {
	const unreadable = "that can't be read"
	if len(keyType) != 4 {
		return unreadable
	}
	length := len(key)
	switch magic := binary.BigEndian.Uint32(keyType); {
	case magic == nftables.TypeIFName.GetNFTMagic():
		return text(key)
	case magic == nftables.TypeInetService.GetNFTMagic() && length >= 2:
		return fmt.Sprint(binary.BigEndian.Uint16(key))
	case (magic == nftables.TypeUID.GetNFTMagic() || magic == nftables.TypeGID.GetNFTMagic()) && length >= 4:
		return fmt.Sprint(binary.NativeEndian.Uint32(key))
	}
	address, ok := netip.AddrFromSlice(key)
	if !ok {
		return unreadable
	}
	return address.String()
}
