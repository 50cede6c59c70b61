// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"fmt"
	"math"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// setChunk is how many elements go into one message: a netlink attribute, and
// so the list of elements, holds at most 64 KiB, and more is cut off silently.
const setChunk = 500

type setsByName map[string]*nftables.Set

func addSets(conn *nftables.Conn, table *nftables.Table, sets []capture.Set) (setsByName, error) {
	added := setsByName{}
	for i, set := range sets {
		// The id, which the rules of this transaction name the set by, is ours:
		// the library would count in a variable that all transactions share.
		encoded := &nftables.Set{Table: table, ID: uint32(i + 1), Name: set.Name, Interval: set.Type.Interval()}
		encoded.KeyType, encoded.KeyByteOrder = keyType(set.Type)
		if err := conn.AddSet(encoded, nil); err != nil {
			return nil, fmt.Errorf("encoding set %s: %w", set.Name, err)
		}
		for chunk := range slices.Chunk(elements(set), setChunk) {
			if err := conn.SetAddElements(encoded, chunk); err != nil {
				return nil, fmt.Errorf("encoding set %s: %w", set.Name, err)
			}
		}
		added[set.Name] = encoded
	}
	return added, nil
}

// keyType gives a set's type and the order of its elements' bytes, which the
// kernel ignores and nft's listing needs.
func keyType(t capture.SetType) (nftables.SetDatatype, binaryutil.ByteOrder) {
	switch t {
	case capture.InterfaceSet:
		return nftables.TypeIFName, binaryutil.NativeEndian
	case capture.IPv4Set:
		return nftables.TypeIPAddr, binaryutil.BigEndian
	case capture.IPv6Set:
		return nftables.TypeIP6Addr, binaryutil.BigEndian
	case capture.PortSet:
		return nftables.TypeInetService, binaryutil.BigEndian
	case capture.UIDSet:
		return nftables.TypeUID, binaryutil.NativeEndian
	case capture.GIDSet:
		return nftables.TypeGID, binaryutil.NativeEndian
	}
	panic("netfilter: a set of a type that no match has")
}

// elements spells a set's values. In an interval set each is two elements:
// its first key and the one after its last, which is left out where there is none.
func elements(set capture.Set) []nftables.SetElement {
	encoded := make([]nftables.SetElement, 0, 2*len(set.Elements))
	for _, value := range set.Elements {
		encoded = append(encoded, nftables.SetElement{Key: key(value)})
		if !set.Type.Interval() {
			continue
		}
		if end := after(value); end != nil {
			encoded = append(encoded, nftables.SetElement{Key: end, IntervalEnd: true})
		}
	}
	return encoded
}

// after is the key behind a range or a single port.
func after(value any) []byte {
	switch v := value.(type) {
	case netip.Prefix:
		if next := lastAddress(v).Next(); next.IsValid() {
			return next.AsSlice()
		}
	case uint16:
		if v < math.MaxUint16 {
			return key(v + 1)
		}
	}
	return nil
}

func lastAddress(p netip.Prefix) netip.Addr {
	last := p.Addr().AsSlice()
	for i, bits := range mask(p) {
		last[i] |= ^bits
	}
	addr, _ := netip.AddrFromSlice(last)
	return addr
}
