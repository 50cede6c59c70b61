// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/dump"
	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
)

// TestElements expects the elements of the kernel's interval sets: a first key,
// and the key after the last one unless the space of keys ends there.
func TestElements(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		kind  capture.SetType
		value any
		first string
		end   string // "" where there is none
	}{
		{capture.IPv4Set, netip.MustParsePrefix("10.0.0.0/8"), "0a000000", "0b000000"},
		{capture.IPv4Set, netip.MustParsePrefix("10.1.2.3/32"), "0a010203", "0a010204"},
		{capture.IPv4Set, netip.MustParsePrefix("10.1.2.0/23"), "0a010200", "0a010400"},
		{capture.IPv4Set, netip.MustParsePrefix("0.0.0.0/0"), "00000000", ""},
		{capture.IPv4Set, netip.MustParsePrefix("128.0.0.0/1"), "80000000", ""},
		{capture.IPv4Set, netip.MustParsePrefix("255.255.255.255/32"), "ffffffff", ""},
		{capture.IPv4Set, netip.MustParsePrefix("127.255.255.255/32"), "7fffffff", "80000000"},
		{capture.IPv6Set, netip.MustParsePrefix("2001:db8::/33"), "20010db8000000000000000000000000", "20010db8800000000000000000000000"},
		{capture.IPv6Set, netip.MustParsePrefix("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128"), "ffffffffffffffffffffffffffffffff", ""},
		{capture.IPv6Set, netip.MustParsePrefix("::1/128"), "00000000000000000000000000000001", "00000000000000000000000000000002"},
		{capture.PortSet, capture.PortRange{First: 0, Last: 0}, "0000", "0001"},
		{capture.PortSet, capture.PortRange{First: 1, Last: 255}, "0001", "0100"},
		{capture.PortSet, capture.PortRange{First: 65535, Last: 65535}, "ffff", ""},
		{capture.InterfaceSet, "abcdefghijklmno", "6162636465666768696a6b6c6d6e6f00", ""},
		{capture.InterfaceSet, "lo", "6c6f0000000000000000000000000000", ""},
	} {
		var first, end []string
		for key, endsRange := range Elements(test.kind, []any{test.value}) {
			if endsRange {
				end = append(end, hex.EncodeToString(key))
			} else {
				first = append(first, hex.EncodeToString(key))
			}
		}
		if strings.Join(first, " ") != test.first || strings.Join(end, " ") != test.end {
			t.Errorf("%v: got %s and end %s, want %s and %q", test.value, first, end, test.first, test.end)
		}
	}
}

// native returns a number as the kernel's own code writes it to a register.
func native[T uint16 | uint32](number T) []byte {
	return slices.Clone(unsafe.Slice((*byte)(unsafe.Pointer(&number)), unsafe.Sizeof(number)))
}

// TestExpressions compares expressions with those of google/nftables, because on s390x no test asks the kernel.
func TestExpressions(t *testing.T) {
	t.Parallel()
	const mark, zone = 0x03040506, 0x0506
	address := netip.MustParseAddr("2001:db8::1")
	for name, tt := range map[string]struct {
		rule     capture.Rule
		want     []expr.Any
		isPrefix bool // the rule has more expressions
	}{
		"redirect": {
			capture.Rule{Do: capture.Action{Verdict: capture.Redirect, Port: 0x0102}},
			[]expr.Any{&expr.Immediate{Register: 1, Data: []byte{1, 2}}, &expr.Redir{RegisterProtoMin: 1}},
			false,
		},
		"mark": {
			capture.Rule{Do: capture.Action{Verdict: capture.SetMark, Mark: mark}},
			[]expr.Any{&expr.Immediate{Register: 1, Data: native[uint32](mark)}, &expr.Meta{Key: expr.MetaKeyMARK, Register: 1, SourceRegister: true}},
			false,
		},
		"zone": { // google/nftables does not encode the direction of a zone
			capture.Rule{Do: capture.Action{Verdict: capture.SetZone, Zone: zone}},
			[]expr.Any{&expr.Immediate{Register: 1, Data: native[uint16](zone)}},
			true,
		},
		"translation to an address and port": {
			capture.Rule{Do: capture.Action{Verdict: capture.Translate, To: netip.MustParseAddrPort("127.0.0.1:15053")}},
			[]expr.Any{
				&expr.Immediate{Register: 2, Data: []byte{0x3a, 0xcd}}, &expr.Immediate{Register: 1, Data: []byte{127, 0, 0, 1}},
				&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1, RegProtoMin: 2},
			},
			false,
		},
		"translation to an address": {
			capture.Rule{Do: capture.Action{Verdict: capture.Translate, To: netip.AddrPortFrom(address, 0)}},
			[]expr.Any{&expr.Immediate{Register: 1, Data: address.AsSlice()}, &expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV6, RegAddrMin: 1}},
			false,
		},
		"range of uids": {
			capture.Rule{Match: capture.Match{UIDRange: capture.IDRange{First: 0x01020304, Last: 0x05060708}}, Do: capture.Action{Verdict: capture.Drop}},
			[]expr.Any{
				&expr.Meta{Key: expr.MetaKeySKUID, Register: 1},
				&expr.Byteorder{SourceRegister: 1, DestRegister: 1, Op: expr.ByteorderHton, Len: 4, Size: 4},
				&expr.Cmp{Op: expr.CmpOpGte, Register: 1, Data: []byte{1, 2, 3, 4}}, &expr.Cmp{Op: expr.CmpOpLte, Register: 1, Data: []byte{5, 6, 7, 8}},
				&expr.Verdict{Kind: expr.VerdictDrop},
			},
			false,
		},
	} {
		got, want := nfnetlink.NewBatch(), nfnetlink.NewBatch()
		tt.rule.PerPacket = true // without a counter
		encoder{batch: got}.rule(capture.NAT, tt.rule)
		for _, e := range tt.want {
			encoded, err := expr.Marshal(unix.NFPROTO_INET, e)
			lab.Check(t, err)
			want.Bytes(unix.NFTA_LIST_ELEM|unix.NLA_F_NESTED, encoded)
		}
		if !bytes.HasPrefix(got.Content, want.Content) || !tt.isPrefix && len(got.Content) != len(want.Content) {
			t.Errorf("%s:\ngot  % x\nwant % x", name, got.Content, want.Content)
		}
	}
}

// TestSetsAreChunked expects the elements of a message to fit into a netlink
// attribute: longer ones are truncated silently.
func TestSetsAreChunked(t *testing.T) {
	t.Parallel()
	const largestElement = 4 + 4 + 4 + 16 + 8 // headers of the element, its key and the data, an address, the flags
	if 2*setChunk*largestElement >= 1<<16 {   // the beginning and the end of a range
		t.Errorf("%d values of an IPv6 set do not fit into one attribute", setChunk)
	}
}

func TestElementLabels(t *testing.T) {
	t.Parallel()
	kind := func(d nftables.SetDatatype) []byte {
		magic := d.GetNFTMagic()
		return []byte{byte(magic >> 24), byte(magic >> 16), byte(magic >> 8), byte(magic)}
	}
	for _, test := range []struct {
		setType, key, flags []byte
		want                string
	}{
		{kind(nftables.TypeInetService), []byte{0x3a, 0x98}, nil, "element 15000"},
		{kind(nftables.TypeInetService), []byte{0x3a, 0x99}, []byte{0, 0, 0, 1}, "the end of a range before 15001"},
		{kind(nftables.TypeIPAddr), []byte{10, 0, 0, 0}, []byte{0, 0, 0, 0}, "element 10.0.0.0"},
		{kind(nftables.TypeIP6Addr), bytes.Repeat([]byte{0xfd}, 16), nil, "element fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd"},
		{kind(nftables.TypeIFName), append([]byte("eth0"), make([]byte, 12)...), nil, "element eth0"},
		{kind(nftables.TypeGID), key(uint32(1337)), nil, "element 1337"},
		{kind(nftables.TypeUID), key(uint32(4294967295)), nil, "element 4294967295"},
		{nil, []byte{1, 2, 3, 4}, nil, "element that can't be read"},
		{kind(nftables.TypeIPAddr), nil, nil, "element that can't be read"},
		{kind(nftables.TypeIPAddr), []byte{200, 0, 1}, nil, "element that can't be read"},
	} {
		if got := dump.ElementLabel(string(test.setType), dump.ElementContent(test.key, test.flags)); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}

// FuzzElements parses elements that no kernel sends today.
func FuzzElements(f *testing.F) {
	f.Add([]byte{12, 0, 1, 0, 8, 0, 1, 0, 'l', 'o', 0, 0})
	f.Add([]byte{200, 0, 1, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		items, err := parseElements(data)
		if err == nil && len(items) > len(data)/4 {
			t.Errorf("%d elements of %d bytes", len(items), len(data))
		}
	})
}
