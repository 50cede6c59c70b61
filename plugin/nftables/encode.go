// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"encoding/binary"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
)

// encoder appends the expressions of a rule to a batch.
type encoder struct {
	batch *nfnetlink.Batch
	sets  setIDs
}

// rule appends the kernel's expressions for a rule, in the order in which Ruleset.String prints the
// matches.
func (e encoder) rule(table capture.Table, rule capture.Rule) {
	m := rule.Match
	e.family(m.Family)
	matchList(e, m.In, meta(unix.NFT_META_IIFNAME))
	matchList(e, m.Out, meta(unix.NFT_META_OIFNAME))
	e.number(m.FromLo, meta(unix.NFT_META_IIF), unix.NFT_CMP_EQ, loopbackIndex)
	e.number(m.ToLo, meta(unix.NFT_META_OIF), unix.NFT_CMP_EQ, loopbackIndex)
	e.addresses(m.Src, sourceAddress)
	e.addresses(m.Dst, destinationAddress)
	e.byte(m.HopLimit != 0, payload(unix.NFT_PAYLOAD_NETWORK_HEADER, 7, 1), m.HopLimit)
	e.byte(m.Protocol != "", meta(unix.NFT_META_L4PROTO), protocolNumber[m.Protocol])
	e.icmpTypes(m.ICMPTypes)
	e.ports(m.DstPort)
	matchList(e, m.UID, meta(unix.NFT_META_SKUID))
	e.uidRange(m.UIDRange)
	matchList(e, m.GID, meta(unix.NFT_META_SKGID))
	e.number(m.Mark != 0, meta(unix.NFT_META_MARK), unix.NFT_CMP_EQ, m.Mark)
	e.number(m.ExceptMark != 0, meta(unix.NFT_META_MARK), unix.NFT_CMP_NEQ, m.ExceptMark)
	e.number(m.ConnMark != 0, conntrack(unix.NFT_CT_MARK), unix.NFT_CMP_EQ, m.ConnMark)
	e.number(m.ExceptConnMark != 0, conntrack(unix.NFT_CT_MARK), unix.NFT_CMP_NEQ, m.ExceptConnMark)
	e.byte(m.Original, conntrack(unix.NFT_CT_DIRECTION), directionOriginal)
	e.byte(m.Answer, conntrack(unix.NFT_CT_DIRECTION), directionReply)
	e.bit(m.Unconfirmed, unix.NFT_CT_STATUS, statusConfirmed, unix.NFT_CMP_EQ) // cheaper than the routes below
	e.number(m.ForeignSource, addressType(unix.NFTA_FIB_F_SADDR), unix.NFT_CMP_NEQ, unix.RTN_LOCAL)
	e.number(m.OwnSource, addressType(unix.NFTA_FIB_F_SADDR), unix.NFT_CMP_EQ, unix.RTN_LOCAL)
	e.number(m.ForeignDst, addressType(unix.NFTA_FIB_F_DADDR), unix.NFT_CMP_NEQ, unix.RTN_LOCAL)
	e.flags(m.Begins, fin|syn|rst|ack, syn)
	e.flags(m.Accepts, syn|ack, syn|ack)
	e.flags(m.Continues, syn|rst|ack, ack)
	e.bit(m.Invalid, unix.NFT_CT_STATE, stateInvalid, unix.NFT_CMP_NEQ) // without an entry, a packet has a state but no status
	e.bit(m.Confirmed, unix.NFT_CT_STATUS, statusConfirmed, unix.NFT_CMP_NEQ)
	e.bit(m.Translated, unix.NFT_CT_STATUS, statusDNAT, unix.NFT_CMP_NEQ)
	e.bit(m.Assured, unix.NFT_CT_STATUS, statusAssured, unix.NFT_CMP_NEQ)
	if !rule.PerPacket {
		e.add("counter")
	}
	e.action(table, rule.Do)
}

// number matches, if isSet, packets for which the comparison of a field with a value is true.
func (e encoder) number(isSet bool, f field, operator, value uint32) {
	if isSet {
		e.load(f)
		e.compare(operator, key(value))
	}
}

// byte matches, if isSet, packets whose field of one byte has a value.
func (e encoder) byte(isSet bool, f field, value byte) {
	if isSet {
		e.load(f)
		e.compare(unix.NFT_CMP_EQ, []byte{value})
	}
}

var protocolNumber = map[capture.Protocol]byte{
	capture.TCP: unix.IPPROTO_TCP, capture.UDP: unix.IPPROTO_UDP, capture.ICMP: unix.IPPROTO_ICMP, capture.ICMPv6: unix.IPPROTO_ICMPV6,
}

func (e encoder) family(family capture.Family) {
	e.byte(family != "", meta(unix.NFT_META_NFPROTO), nfnetlink.FamilyNumber[family])
}

// matchList matches packets whose field has one of the list's values. An empty list matches each packet.
func matchList[T any](e encoder, list capture.List[T], f field) {
	if len(list.Values) == 0 {
		return
	}
	e.load(f)
	if len(list.Values) == 1 {
		e.compare(unix.NFT_CMP_EQ, key(list.Values[0]))
	} else {
		e.lookup(list.Name)
	}
}

// addressOffset contains the offsets of an address in the IPv4 header and in the IPv6 header.
type addressOffset struct{ ipv4, ipv6 uint32 }

var (
	sourceAddress      = addressOffset{12, 8}
	destinationAddress = addressOffset{16, 24}
)

func (e encoder) addresses(list capture.List[netip.Prefix], at addressOffset) {
	if len(list.Values) == 0 {
		return
	}
	first := list.Values[0]
	address := payload(unix.NFT_PAYLOAD_NETWORK_HEADER, at.ipv4, 4)
	if !first.Addr().Is4() {
		address = payload(unix.NFT_PAYLOAD_NETWORK_HEADER, at.ipv6, 16)
	}
	e.family(capture.FamilyOf(first.Addr()))
	if len(list.Values) > 1 || first.IsSingleIP() {
		matchList(e, list, address)
		return
	}
	if first.Bits() != 0 { // a range of prefix length 0 is the whole family, which e.family matches
		e.load(address)
		e.mask(net.CIDRMask(first.Bits(), first.Addr().BitLen()))
		e.compare(unix.NFT_CMP_EQ, key(first))
	}
}

// ports matches the destination port: a single port, a range, or a set of both.
func (e encoder) ports(list capture.List[capture.PortRange]) {
	if len(list.Values) != 1 || list.Values[0].First == list.Values[0].Last {
		matchList(e, list, destinationPort())
		return
	}
	e.load(destinationPort())
	e.between(key(list.Values[0].First), key(list.Values[0].Last))
}

// between matches a loaded value from first to last.
func (e encoder) between(first, last []byte) {
	e.compare(unix.NFT_CMP_GTE, first)
	e.compare(unix.NFT_CMP_LTE, last)
}

// uidRange matches a range of uids of the socket's owner. The kernel compares bytes, so an expression first
// converts the uid to network byte order.
func (e encoder) uidRange(r capture.IDRange) {
	if r != (capture.IDRange{}) {
		e.load(meta(unix.NFT_META_SKUID))
		e.add("byteorder", number(unix.NFTA_BYTEORDER_SREG, register), number(unix.NFTA_BYTEORDER_DREG, register),
			number(unix.NFTA_BYTEORDER_OP, unix.NFT_BYTEORDER_HTON), number(unix.NFTA_BYTEORDER_LEN, 4), number(unix.NFTA_BYTEORDER_SIZE, 4))
		e.between(binary.BigEndian.AppendUint32(nil, r.First), binary.BigEndian.AppendUint32(nil, r.Last))
	}
}

func (e encoder) icmpTypes(types capture.TypeRange) {
	kind := payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 0, 1)
	if types.First == types.Last {
		e.byte(types.Last != 0, kind, types.First)
		return
	}
	e.load(kind)
	e.between([]byte{types.First}, []byte{types.Last})
}

// loopbackIndex is the index of the loopback interface in each namespace, whatever its name
// (LOOPBACK_IFINDEX in the kernel's net/flow.h).
const loopbackIndex uint32 = 1

// stateInvalid is the state of a packet that conntrack assigns to no connection, unless a rule exempts the
// packet from conntrack (NF_CT_STATE_INVALID_BIT).
const stateInvalid uint32 = 1 << 0

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

// bit matches, if isSet, packets for which the comparison of one bit of a conntrack field with 0 is true:
// NFT_CMP_NEQ finds a set bit.
func (e encoder) bit(isSet bool, of, bit, operator uint32) {
	if isSet {
		e.load(conntrack(of))
		e.mask(key(bit))
		e.compare(operator, make([]byte, 4))
	}
}

// Flags of the TCP header.
const (
	fin byte = 0x01
	syn byte = 0x02
	rst byte = 0x04
	ack byte = 0x10
)

// flags matches, if isSet, packets that have, of the TCP flags in among, exactly those in set.
func (e encoder) flags(isSet bool, among, set byte) {
	if isSet {
		e.load(payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 13, 1))
		e.mask([]byte{among})
		e.compare(unix.NFT_CMP_EQ, []byte{set})
	}
}

// Verdicts of linux/netfilter.h, and attributes of linux/netfilter/nf_tables.h, which golang.org/x/sys
// lacks.
const (
	drop         = 0
	accept       = 1
	tproxyFamily = 1 // NFTA_TPROXY_FAMILY
	tproxyPort   = 3 // NFTA_TPROXY_REG_PORT
)

func (e encoder) action(table capture.Table, do capture.Action) {
	switch do.Verdict {
	case capture.Return:
		e.verdict(unix.NFT_RETURN, "")
	case capture.Drop:
		e.verdict(drop, "")
	case capture.Reject:
		e.add("reject", number(unix.NFTA_REJECT_TYPE, unix.NFT_REJECT_TCP_RST))
	case capture.Jump:
		e.verdict(unix.NFT_JUMP, capture.NFTChain(table, do.Chain))
	case capture.Goto:
		e.verdict(unix.NFT_GOTO, capture.NFTChain(table, do.Chain))
	case capture.Redirect:
		e.use(key(do.Port), "redir", number(unix.NFTA_REDIR_REG_PROTO_MIN, register))
	case capture.Translate:
		e.translate(do.To)
	case capture.TProxy:
		e.use(key(do.Port), "tproxy", number(tproxyFamily, unix.NFPROTO_UNSPEC), number(tproxyPort, register))
		e.setMark(do.Mark)
		e.setConnMark(do.ConnMark)
		e.verdict(accept, "")
	case capture.SetMark:
		e.setMark(do.Mark)
	case capture.SetConnMark:
		e.setConnMark(do.Mark)
	case capture.SetZone:
		e.setZone(do.Zone)
	}
}

func (e encoder) setMark(mark uint32) {
	e.use(key(mark), "meta", number(unix.NFTA_META_KEY, unix.NFT_META_MARK), number(unix.NFTA_META_SREG, register))
}

func (e encoder) setConnMark(mark uint32) {
	e.use(key(mark), "ct", number(unix.NFTA_CT_KEY, unix.NFT_CT_MARK), number(unix.NFTA_CT_SREG, register))
}

// setZone sets the zone of the original direction.
func (e encoder) setZone(zone uint16) {
	e.immediate(register, binary.NativeEndian.AppendUint16(nil, zone))
	e.batch.Expression("ct", func() {
		e.batch.Number(unix.NFTA_CT_KEY, unix.NFT_CT_ZONE)
		e.batch.Number(unix.NFTA_CT_SREG, register)
		e.batch.Bytes(unix.NFTA_CT_DIRECTION, []byte{directionOriginal})
	})
}

// translate changes the destination to an address and, unless the port is 0, to a port.
func (e encoder) translate(to netip.AddrPort) {
	family := uint32(nfnetlink.FamilyNumber[capture.FamilyOf(to.Addr())])
	attributes := []attribute{
		number(unix.NFTA_NAT_TYPE, unix.NFT_NAT_DNAT), number(unix.NFTA_NAT_FAMILY, family), number(unix.NFTA_NAT_REG_ADDR_MIN, register),
	}
	if to.Port() != 0 {
		e.immediate(register+1, key(to.Port()))
		attributes = append(attributes, number(unix.NFTA_NAT_REG_PROTO_MIN, register+1))
	}
	e.use(to.Addr().AsSlice(), "nat", attributes...)
}
