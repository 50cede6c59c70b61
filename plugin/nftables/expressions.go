// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// register is the register of most rules, because each match loads one value and compares it. A
// translation also uses the next register, for the port.
const register = unix.NFT_REG_1

// field is a part of a packet, or a property of the packet, with the expression that loads it into the
// register.
type field struct {
	expression string
	attributes []attribute
}

// attribute is an attribute of an expression. It contains a number or, if data is not nil, the content of a
// register.
type attribute struct {
	kind   uint16
	number uint32
	data   []byte
}

func number(kind uint16, number uint32) attribute { return attribute{kind: kind, number: number} }

func data(kind uint16, content []byte) attribute { return attribute{kind: kind, data: content} }

func meta(property uint32) field {
	return field{"meta", []attribute{number(unix.NFTA_META_KEY, property), number(unix.NFTA_META_DREG, register)}}
}

func conntrack(property uint32) field {
	return field{"ct", []attribute{number(unix.NFTA_CT_KEY, property), number(unix.NFTA_CT_DREG, register)}}
}

// payload returns a field of a header.
func payload(base, offset, length uint32) field {
	return field{"payload", []attribute{
		number(unix.NFTA_PAYLOAD_DREG, register), number(unix.NFTA_PAYLOAD_BASE, base),
		number(unix.NFTA_PAYLOAD_OFFSET, offset), number(unix.NFTA_PAYLOAD_LEN, length),
	}}
}

// addressType returns the type (RTN_LOCAL and others) of the address that a flag of NFTA_FIB_FLAGS selects.
func addressType(flag uint32) field {
	return field{"fib", []attribute{
		number(unix.NFTA_FIB_DREG, register), number(unix.NFTA_FIB_FLAGS, flag), number(unix.NFTA_FIB_RESULT, unix.NFT_FIB_RESULT_ADDRTYPE),
	}}
}

// destinationPort returns the destination port, which has the same offset in TCP and UDP.
func destinationPort() field { return payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2) }

// add appends an expression.
func (e encoder) add(expression string, attributes ...attribute) {
	e.batch.Expression(expression, func() {
		for _, a := range attributes {
			if a.data == nil {
				e.batch.Number(a.kind, a.number)
			} else {
				e.batch.Nested(a.kind, func() { e.batch.Bytes(unix.NFTA_DATA_VALUE, a.data) })
			}
		}
	})
}

func (e encoder) load(f field) { e.add(f.expression, f.attributes...) }

// immediate loads content into a register.
func (e encoder) immediate(into uint32, content []byte) {
	e.add("immediate", number(unix.NFTA_IMMEDIATE_DREG, into), data(unix.NFTA_IMMEDIATE_DATA, content))
}

// use loads content into the register, and appends an expression that reads the register.
func (e encoder) use(content []byte, expression string, attributes ...attribute) {
	e.immediate(register, content)
	e.add(expression, attributes...)
}

func (e encoder) compare(operator uint32, content []byte) {
	e.add("cmp", number(unix.NFTA_CMP_SREG, register), number(unix.NFTA_CMP_OP, operator), data(unix.NFTA_CMP_DATA, content))
}

// mask keeps the bits of the loaded value that are set in bits.
func (e encoder) mask(bits []byte) {
	e.add("bitwise", number(unix.NFTA_BITWISE_SREG, register), number(unix.NFTA_BITWISE_DREG, register),
		number(unix.NFTA_BITWISE_LEN, uint32(len(bits))),
		data(unix.NFTA_BITWISE_MASK, bits), data(unix.NFTA_BITWISE_XOR, make([]byte, len(bits))))
}

func (e encoder) lookup(set string) {
	e.batch.Expression("lookup", func() {
		e.batch.Number(unix.NFTA_LOOKUP_SREG, register)
		e.batch.Text(unix.NFTA_LOOKUP_SET, set)
		e.batch.Number(unix.NFTA_LOOKUP_SET_ID, e.sets[set])
	})
}

// verdict appends a verdict. chain is the target of a jump or goto, or "".
func (e encoder) verdict(code int32, chain string) {
	e.batch.Expression("immediate", func() {
		e.batch.Number(unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_VERDICT)
		e.batch.Nested(unix.NFTA_IMMEDIATE_DATA, func() {
			e.batch.Nested(unix.NFTA_DATA_VERDICT, func() {
				e.batch.Number(unix.NFTA_VERDICT_CODE, uint32(code))
				if chain != "" {
					e.batch.Text(unix.NFTA_VERDICT_CHAIN, chain)
				}
			})
		})
	})
}

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
		return binary.BigEndian.AppendUint16(nil, v)
	case uint32:
		return binary.NativeEndian.AppendUint32(nil, v)
	}
	panic(fmt.Sprintf("nftables: no encoding for a value of type %T", value))
}
