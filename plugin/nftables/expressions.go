// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// register is the only register that most rules need, because each match loads one value and compares
// it. A translation also uses the next register, for the port.
const register = 1

// field is a value that an expression can load: a part of a packet, or what the kernel knows about it.
type field struct {
	expression string
	attributes [4]attribute
}

// attribute is an attribute of an expression: a number or, if value is not nil, a value of a register. The
// kind 0 is none.
type attribute struct {
	kind   uint16
	number uint32
	value  []byte
}

func number(kind uint16, number uint32) attribute { return attribute{kind: kind, number: number} }

func value(kind uint16, value []byte) attribute { return attribute{kind: kind, value: value} }

func meta(key uint32) field {
	return field{"meta", [4]attribute{number(unix.NFTA_META_KEY, key), number(unix.NFTA_META_DREG, register)}}
}

func conntrack(key uint32) field {
	return field{"ct", [4]attribute{number(unix.NFTA_CT_KEY, key), number(unix.NFTA_CT_DREG, register)}}
}

// payload is a field of a header.
func payload(base, offset, length uint32) field {
	return field{"payload", [4]attribute{
		number(unix.NFTA_PAYLOAD_DREG, register), number(unix.NFTA_PAYLOAD_BASE, base),
		number(unix.NFTA_PAYLOAD_OFFSET, offset), number(unix.NFTA_PAYLOAD_LEN, length),
	}}
}

// addressType is the type of the source or destination address (RTN_LOCAL and others), by a flag of
// NFTA_FIB_FLAGS.
func addressType(flag uint32) field {
	return field{"fib", [4]attribute{
		number(unix.NFTA_FIB_DREG, register), number(unix.NFTA_FIB_FLAGS, flag), number(unix.NFTA_FIB_RESULT, unix.NFT_FIB_RESULT_ADDRTYPE),
	}}
}

// destinationPort is the destination port, which has the same offset in TCP and UDP.
func destinationPort() field { return payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2) }

// add appends an expression.
func (e encoder) add(expression string, attributes ...attribute) {
	e.batch.Expression(expression, func() {
		for _, a := range attributes {
			switch {
			case a.kind == 0:
			case a.value != nil:
				e.batch.Nested(a.kind, func() { e.batch.Bytes(unix.NFTA_DATA_VALUE, a.value) })
			default:
				e.batch.Number(a.kind, a.number)
			}
		}
	})
}

func (e encoder) load(f field) { e.add(f.expression, f.attributes[:]...) }

// immediate loads a value into a register.
func (e encoder) immediate(register uint32, data []byte) {
	e.add("immediate", number(unix.NFTA_IMMEDIATE_DREG, register), value(unix.NFTA_IMMEDIATE_DATA, data))
}

// use appends an expression that uses a value of the register.
func (e encoder) use(data []byte, expression string, attributes ...attribute) {
	e.immediate(register, data)
	e.add(expression, attributes...)
}

func (e encoder) compare(operator uint32, with []byte) {
	e.add("cmp", number(unix.NFTA_CMP_SREG, register), number(unix.NFTA_CMP_OP, operator), value(unix.NFTA_CMP_DATA, with))
}

// mask keeps the bits of the loaded value that are set in bits.
func (e encoder) mask(bits []byte) {
	e.add("bitwise", number(unix.NFTA_BITWISE_SREG, register), number(unix.NFTA_BITWISE_DREG, register),
		number(unix.NFTA_BITWISE_LEN, uint32(len(bits))),
		value(unix.NFTA_BITWISE_MASK, bits), value(unix.NFTA_BITWISE_XOR, make([]byte, len(bits))))
}

func (e encoder) lookup(set string) {
	e.batch.Expression("lookup", func() {
		e.batch.Number(unix.NFTA_LOOKUP_SREG, register)
		e.batch.Text(unix.NFTA_LOOKUP_SET, set)
		e.batch.Number(unix.NFTA_LOOKUP_SET_ID, e.sets[set])
	})
}

// verdict appends a verdict. chain is the target of a jump, or "".
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
