// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
)

// register is the only register that most rules need, because each match loads one value and compares
// it. A translation also uses the next register, for the port.
const register = 1

// encodeRule returns the kernel's expressions for a rule, in the order in which Ruleset.String prints
// the matches.
func encodeRule(table capture.Table, rule capture.Rule, sets setIDs) []expr.Any {
	e := encoder{sets: sets}
	m := rule.Match
	e.family(m.Family)
	encodeList(&e, m.In, meta(expr.MetaKeyIIFNAME))
	encodeList(&e, m.Out, meta(expr.MetaKeyOIFNAME))
	e.number(m.FromLo, meta(expr.MetaKeyIIF), expr.CmpOpEq, loopbackIndex)
	e.number(m.ToLo, meta(expr.MetaKeyOIF), expr.CmpOpEq, loopbackIndex)
	e.addresses(m.Src, sourceAddress)
	e.addresses(m.Dst, destinationAddress)
	if m.HopLimit != 0 {
		e.add(payload(expr.PayloadBaseNetworkHeader, 7, 1), equal([]byte{m.HopLimit}))
	}
	if m.Protocol != "" {
		e.add(meta(expr.MetaKeyL4PROTO), equal([]byte{protocolNumber[m.Protocol]}))
	}
	e.icmpTypes(m.ICMPTypes)
	e.ports(m.DstPort)
	encodeList(&e, m.UID, meta(expr.MetaKeySKUID))
	e.uidRange(m.UIDRange)
	encodeList(&e, m.GID, meta(expr.MetaKeySKGID))
	e.number(m.Mark != 0, meta(expr.MetaKeyMARK), expr.CmpOpEq, m.Mark)
	e.number(m.ExceptMark != 0, meta(expr.MetaKeyMARK), expr.CmpOpNeq, m.ExceptMark)
	e.number(m.ConnMark != 0, conntrack(expr.CtKeyMARK), expr.CmpOpEq, m.ConnMark)
	e.number(m.ExceptConnMark != 0, conntrack(expr.CtKeyMARK), expr.CmpOpNeq, m.ExceptConnMark)
	e.direction(m.Original, directionOriginal)
	e.direction(m.Answer, directionReply)
	e.number(m.ForeignSource, &expr.Fib{Register: register, ResultADDRTYPE: true, FlagSADDR: true}, expr.CmpOpNeq, unix.RTN_LOCAL)
	e.number(m.OwnSource, &expr.Fib{Register: register, ResultADDRTYPE: true, FlagSADDR: true}, expr.CmpOpEq, unix.RTN_LOCAL)
	e.number(m.ForeignDst, &expr.Fib{Register: register, ResultADDRTYPE: true, FlagDADDR: true}, expr.CmpOpNeq, unix.RTN_LOCAL)
	e.flags(m.Begins, fin|syn|rst|ack, syn)
	e.flags(m.Accepts, syn|ack, syn|ack)
	e.flags(m.Continues, syn|rst|ack, ack)
	e.bit(m.Invalid, expr.CtKeySTATE, expr.CtStateBitINVALID, expr.CmpOpNeq) // without an entry, a packet has a state but no status
	e.bit(m.Unconfirmed, expr.CtKeySTATUS, statusConfirmed, expr.CmpOpEq)
	e.bit(m.Confirmed, expr.CtKeySTATUS, statusConfirmed, expr.CmpOpNeq)
	e.bit(m.Translated, expr.CtKeySTATUS, statusDNAT, expr.CmpOpNeq)
	e.bit(m.Assured, expr.CtKeySTATUS, statusAssured, expr.CmpOpNeq)
	if !rule.PerPacket {
		e.add(&expr.Counter{})
	}
	e.verdict(table, rule.Do)
	return e.exprs
}

type encoder struct {
	sets  setIDs
	exprs []expr.Any
}

func (e *encoder) add(exprs ...expr.Any) { e.exprs = append(e.exprs, exprs...) }

// number adds, if isSet, expressions that load a number and compare it with a value.
func (e *encoder) number(isSet bool, load expr.Any, op expr.CmpOp, value uint32) {
	if isSet {
		e.add(load, compare(op, key(value)))
	}
}

func compare(op expr.CmpOp, value []byte) expr.Any {
	return &expr.Cmp{Op: op, Register: register, Data: value}
}

func equal(value []byte) expr.Any { return compare(expr.CmpOpEq, value) }

var protocolNumber = map[capture.Protocol]byte{
	capture.TCP: unix.IPPROTO_TCP, capture.UDP: unix.IPPROTO_UDP, capture.ICMP: unix.IPPROTO_ICMP, capture.ICMPv6: unix.IPPROTO_ICMPV6,
}

func (e *encoder) family(family capture.Family) {
	if family != "" {
		e.add(meta(expr.MetaKeyNFPROTO), equal([]byte{nfnetlink.FamilyNumber[family]}))
	}
}

// encodeList adds expressions that load a field, and compare it with the list's single value or look it
// up in the list's set. An empty list adds none.
func encodeList[T any](e *encoder, list capture.List[T], load expr.Any) {
	switch len(list.Values) {
	case 0:
	case 1:
		e.add(load, equal(key(list.Values[0])))
	default:
		e.add(load, &expr.Lookup{SourceRegister: register, SetName: list.Name, SetID: e.sets[list.Name]})
	}
}

// addressOffset contains the offsets of an address in the IPv4 header and in the IPv6 header.
type addressOffset struct{ ipv4, ipv6 uint32 }

var (
	sourceAddress      = addressOffset{12, 8}
	destinationAddress = addressOffset{16, 24}
)

func (e *encoder) addresses(list capture.List[netip.Prefix], at addressOffset) {
	if len(list.Values) == 0 {
		return
	}
	first := list.Values[0]
	load := payload(expr.PayloadBaseNetworkHeader, at.ipv4, 4)
	if !first.Addr().Is4() {
		load = payload(expr.PayloadBaseNetworkHeader, at.ipv6, 16)
	}
	e.family(capture.FamilyOf(first.Addr()))
	if len(list.Values) > 1 || first.IsSingleIP() {
		encodeList(e, list, load)
		return
	}
	if first.Bits() != 0 { // a range of prefix length 0 is the whole family, which e.family matches
		e.add(load, and(net.CIDRMask(first.Bits(), first.Addr().BitLen())), equal(key(first)))
	}
}

// ports compares the destination port with a single port or range, or looks it up in the set.
func (e *encoder) ports(list capture.List[capture.PortRange]) {
	if len(list.Values) != 1 || list.Values[0].First == list.Values[0].Last {
		encodeList(e, list, destinationPort)
		return
	}
	e.add(destinationPort, compare(expr.CmpOpGte, key(list.Values[0].First)), compare(expr.CmpOpLte, key(list.Values[0].Last)))
}

// uidRange adds a comparison of the socket's uid with a range. The kernel compares bytes, so the uid is
// first converted to network byte order.
func (e *encoder) uidRange(r capture.IDRange) {
	if r != (capture.IDRange{}) {
		first, last := binaryutil.BigEndian.PutUint32(r.First), binaryutil.BigEndian.PutUint32(r.Last)
		e.add(meta(expr.MetaKeySKUID), &expr.Byteorder{SourceRegister: register, DestRegister: register, Op: expr.ByteorderHton, Len: 4, Size: 4},
			compare(expr.CmpOpGte, first), compare(expr.CmpOpLte, last))
	}
}

func (e *encoder) icmpTypes(types capture.TypeRange) {
	load := payload(expr.PayloadBaseTransportHeader, 0, 1)
	switch {
	case types.Last == 0:
	case types.First == types.Last:
		e.add(load, equal([]byte{types.First}))
	default:
		e.add(load, compare(expr.CmpOpGte, []byte{types.First}), compare(expr.CmpOpLte, []byte{types.Last}))
	}
}

// loopbackIndex is the index of the loopback interface in each namespace, whatever its name
// (LOOPBACK_IFINDEX in the kernel's net/flow.h).
const loopbackIndex uint32 = 1

// Bits of a conntrack entry's status, from enum ip_conntrack_status.
const (
	statusAssured   uint32 = 1 << 2
	statusConfirmed uint32 = 1 << 3
	statusDNAT      uint32 = 1 << 5
)

// Directions of a connection's packets: from the client (IP_CT_DIR_ORIGINAL), and from the server
// (IP_CT_DIR_REPLY).
const (
	directionOriginal = 0
	directionReply    = 1
)

func (e *encoder) direction(isSet bool, direction byte) {
	if isSet {
		e.add(conntrack(expr.CtKeyDIRECTION), equal([]byte{direction}))
	}
}

// bit adds, if isSet, a comparison of one bit of a conntrack field with 0.
func (e *encoder) bit(isSet bool, of expr.CtKey, bit uint32, op expr.CmpOp) {
	if isSet {
		e.add(conntrack(of), and(key(bit)), compare(op, make([]byte, 4)))
	}
}

// Flags of the TCP header.
const (
	fin byte = 0x01
	syn byte = 0x02
	rst byte = 0x04
	ack byte = 0x10
)

// flags adds, if isSet, a test of the TCP flags in some: those in set must be set, and the others must
// not.
func (e *encoder) flags(isSet bool, some, set byte) {
	if isSet {
		e.add(payload(expr.PayloadBaseTransportHeader, 13, 1), and([]byte{some}), equal([]byte{set}))
	}
}

func and(mask []byte) expr.Any {
	return &expr.Bitwise{
		SourceRegister: register, DestRegister: register, Len: uint32(len(mask)),
		Mask: mask, Xor: make([]byte, len(mask)),
	}
}

func (e *encoder) verdict(table capture.Table, do capture.Action) {
	target := capture.NFTChain(table, do.Chain)
	switch do.Verdict {
	case capture.Return:
		e.add(&expr.Verdict{Kind: expr.VerdictReturn})
	case capture.Drop:
		e.add(&expr.Verdict{Kind: expr.VerdictDrop})
	case capture.Reject:
		e.add(&expr.Reject{Type: unix.NFT_REJECT_TCP_RST})
	case capture.Jump:
		e.add(&expr.Verdict{Kind: expr.VerdictJump, Chain: target})
	case capture.Goto:
		e.add(&expr.Verdict{Kind: expr.VerdictGoto, Chain: target})
	case capture.Redirect:
		e.load(key(do.Port), &expr.Redir{RegisterProtoMin: register})
	case capture.Translate:
		e.translate(do.To)
	case capture.TProxy:
		e.load(key(do.Port), &expr.TProxy{RegPort: register})
		e.load(key(do.Mark), &expr.Meta{Key: expr.MetaKeyMARK, Register: register, SourceRegister: true})
		e.load(key(do.ConnMark), &expr.Ct{Key: expr.CtKeyMARK, Register: register, SourceRegister: true})
		e.add(&expr.Verdict{Kind: expr.VerdictAccept})
	case capture.SetMark:
		e.load(key(do.Mark), &expr.Meta{Key: expr.MetaKeyMARK, Register: register, SourceRegister: true})
	case capture.SetConnMark:
		e.load(key(do.Mark), &expr.Ct{Key: expr.CtKeyMARK, Register: register, SourceRegister: true})
	case capture.SetZone:
		zone := binaryutil.NativeEndian.PutUint16(do.Zone)
		e.load(zone, &expr.Ct{Key: expr.CtKeyZONE, Register: register, SourceRegister: true, Direction: directionOriginal})
	}
}

// translate adds the translation to an address and, unless the port is 0, to a port. The port is in the
// second register.
func (e *encoder) translate(to netip.AddrPort) {
	family := nfnetlink.FamilyNumber[capture.FamilyOf(to.Addr())]
	nat := &expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(family), RegAddrMin: register}
	if to.Port() != 0 {
		nat.RegProtoMin = register + 1
		e.add(&expr.Immediate{Register: register + 1, Data: key(to.Port())})
	}
	e.load(to.Addr().AsSlice(), nat)
}

// load adds an expression that loads a value into the register, and then the expression use.
func (e *encoder) load(value []byte, use expr.Any) {
	e.add(&expr.Immediate{Register: register, Data: value}, use)
}

func meta(key expr.MetaKey) expr.Any { return &expr.Meta{Key: key, Register: register} }

func conntrack(key expr.CtKey) expr.Any { return &expr.Ct{Key: key, Register: register} }

func payload(base expr.PayloadBase, offset, length uint32) expr.Any {
	return &expr.Payload{DestRegister: register, Base: base, Offset: offset, Len: length}
}

// destinationPort loads the destination port, which has the same offset in TCP and UDP.
var destinationPort = payload(expr.PayloadBaseTransportHeader, 2, 2)

// key returns a value in the kernel's form: names padded to IFNAMSIZ, addresses and ports in network
// byte order, and other numbers in the host's byte order. For a range, key returns the first address or
// port.
func key(value any) []byte {
	switch v := value.(type) {
	case string:
		name := make([]byte, unix.IFNAMSIZ)
		copy(name, v)
		return name
	case netip.Prefix:
		return v.Addr().AsSlice()
	case capture.PortRange:
		return key(v.First)
	case uint16:
		return binaryutil.BigEndian.PutUint16(v)
	case uint32:
		return binaryutil.NativeEndian.PutUint32(v)
	}
	panic(fmt.Sprintf("nftables: no encoding for a value of type %T", value))
}
