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

// setChunk is the number of elements in one message. A netlink attribute, and so
// the list of elements, is limited to 64 KiB: the library truncates longer ones.
const setChunk = 500

type setsByName map[string]*nftables.Set

func addSets(conn *nftables.Conn, table *nftables.Table, sets []capture.Set) (setsByName, error) {
	added := setsByName{}
	for i, set := range sets {
		// Rules of the transaction refer to the set by this id. Without one, the
		// library would count in a variable that all transactions share.
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

// keyType returns a set's type and the byte order of its elements, which the
// kernel ignores and nft needs to list them.
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
	panic(fmt.Sprintf("netfilter: no encoding for a set of type %q", t))
}

// elements encodes a set's values. In an interval set, each value is two elements:
// its first key, and the key after its last one, unless the space of keys ends there.
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

// after returns the key after a range or a single port; nil where there is none.
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
