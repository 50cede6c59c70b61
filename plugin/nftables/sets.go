// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"encoding/binary"
	"iter"
	"math"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
)

// setChunk is the largest number of values in one message, because an attribute, such as the list of
// elements, has at most 64 KiB.
const setChunk = 500

// setIDs maps the names of sets to the ids by which rules of the same transaction refer to them.
type setIDs map[string]uint32

func addSets(b *nfnetlink.Batch, table nfnetlink.Table, sets []capture.Set) setIDs {
	ids := setIDs{}
	for i, set := range sets {
		id := uint32(i + 1)
		ids[set.Name] = id
		addSet(b, table, set, id)
		for chunk := range slices.Chunk(set.Elements, setChunk) {
			addElements(b, table, set, id, chunk)
		}
	}
	return ids
}

func addSet(b *nfnetlink.Batch, table nfnetlink.Table, set capture.Set, id uint32) {
	keys := keyTypes[set.Type]
	flags, byteOrder := uint32(0), uint32(nativeKeys)
	if set.Type.Interval() {
		flags, byteOrder = unix.NFT_SET_INTERVAL, bigEndianKeys
	}
	b.Message(unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE, table.Family, func() {
		b.Text(unix.NFTA_SET_TABLE, table.Name)
		b.Text(unix.NFTA_SET_NAME, set.Name)
		b.Number(unix.NFTA_SET_FLAGS, flags)
		b.Number(unix.NFTA_SET_KEY_TYPE, keys.number)
		b.Number(unix.NFTA_SET_KEY_LEN, keys.length)
		b.Number(unix.NFTA_SET_ID, id)
		b.Bytes(unix.NFTA_SET_USERDATA, binary.NativeEndian.AppendUint32([]byte{keyByteOrder, 4}, byteOrder))
	})
}

func addElements(b *nfnetlink.Batch, table nfnetlink.Table, set capture.Set, id uint32, values []any) {
	b.Message(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, table.Family, func() {
		b.Text(unix.NFTA_SET_ELEM_LIST_TABLE, table.Name)
		b.Text(unix.NFTA_SET_ELEM_LIST_SET, set.Name)
		b.Number(unix.NFTA_SET_ELEM_LIST_SET_ID, id)
		b.Nested(unix.NFTA_SET_ELEM_LIST_ELEMENTS, func() {
			for key, endsRange := range Elements(set.Type, values) {
				addElement(b, key, endsRange)
			}
		})
	})
}

func addElement(b *nfnetlink.Batch, key []byte, endsRange bool) {
	b.Nested(unix.NFTA_LIST_ELEM, func() {
		if endsRange {
			b.Number(unix.NFTA_SET_ELEM_FLAGS, unix.NFT_SET_ELEM_INTERVAL_END)
		}
		b.Nested(unix.NFTA_SET_ELEM_KEY, func() { b.Bytes(unix.NFTA_DATA_VALUE, key) })
	})
}

// Elements iterates over the keys of a set's elements, and over whether each key ends a range. In an
// interval set, each value becomes its first key and the key after its last one. The second key is
// missing if the last key is the largest possible one.
func Elements(t capture.SetType, values []any) iter.Seq2[[]byte, bool] {
	return func(yield func(key []byte, endsRange bool) bool) {
		for _, value := range values {
			if !yield(key(value), false) {
				return
			}
			if !t.Interval() {
				continue
			}
			if end := after(value); end != nil && !yield(end, true) {
				return
			}
		}
	}
}

// User data with the byte order of a set's keys (NFTNL_UDATA_SET_KEYBYTEORDER of libnftnl). The kernel
// ignores it, but nft needs it to print the keys.
const (
	keyByteOrder  = 0
	nativeKeys    = 1
	bigEndianKeys = 2
)

// keyTypes contains the number of each type of keys, and the length of its keys in bytes.
var keyTypes = map[capture.SetType]struct{ number, length uint32 }{
	capture.InterfaceSet: {nfnetlink.KeyTypeInterface, unix.IFNAMSIZ},
	capture.IPv4Set:      {nfnetlink.KeyTypeIPv4, 4},
	capture.IPv6Set:      {nfnetlink.KeyTypeIPv6, 16},
	capture.PortSet:      {nfnetlink.KeyTypePort, 2},
	capture.UIDSet:       {nfnetlink.KeyTypeUID, 4},
	capture.GIDSet:       {nfnetlink.KeyTypeGID, 4},
}

// after returns the key after a range, or nil if the range ends with the largest key.
func after(value any) []byte {
	switch v := value.(type) {
	case netip.Prefix:
		if next := lastAddress(v).Next(); next.IsValid() {
			return next.AsSlice()
		}
	case capture.PortRange:
		if v.Last < math.MaxUint16 {
			return key(v.Last + 1)
		}
	}
	return nil
}

// lastAddress returns the last address of a range. It allocates no memory, because a pod can list
// thousands of ranges.
func lastAddress(p netip.Prefix) netip.Addr {
	last, bits := p.Addr().As16(), p.Bits()
	if p.Addr().Is4() { // an IPv4 address is in the last 4 of the 16 bytes
		bits += 96
	}
	for i := bits / 8; i < len(last); i++ {
		last[i] |= 0xff >> max(0, bits-8*i)
	}
	if p.Addr().Is4() {
		return netip.AddrFrom16(last).Unmap()
	}
	return netip.AddrFrom16(last)
}
