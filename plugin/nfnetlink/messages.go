// SPDX-License-Identifier: Apache-2.0

package nfnetlink

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Table is a table of nf_tables.
type Table struct {
	Family byte
	Name   string
}

func InetTable(name string) Table { return Table{unix.NFPROTO_INET, name} }

// Hook is a netfilter hook at which the kernel calls a chain, with the chain's priority and type.
type Hook struct {
	Number   uint32
	Priority int32
	Type     string // "filter", "nat" or "route"
}

// Types of a set's keys, as enum datatypes of nft numbers them. The kernel only stores these numbers.
const (
	KeyTypeIPv4      = 7
	KeyTypeIPv6      = 8
	KeyTypePort      = 13
	KeyTypeUID       = 24
	KeyTypeGID       = 25
	KeyTypeInterface = 41
)

func (b *Batch) CreateTable(t Table, flags uint16) {
	b.Message(unix.NFT_MSG_NEWTABLE, flags, t.Family, func() {
		b.Text(unix.NFTA_TABLE_NAME, t.Name)
		b.Number(unix.NFTA_TABLE_FLAGS, 0)
	})
}

func (b *Batch) DeleteTable(t Table) {
	b.Message(unix.NFT_MSG_DELTABLE, 0, t.Family, func() { b.Text(unix.NFTA_TABLE_NAME, t.Name) })
}

// AddChain adds a chain. base is nil if no hook calls the chain.
func (b *Batch) AddChain(t Table, name string, base *Hook) {
	b.Message(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, t.Family, func() {
		b.Text(unix.NFTA_CHAIN_TABLE, t.Name)
		b.Text(unix.NFTA_CHAIN_NAME, name)
		if base == nil {
			return
		}
		b.Nested(unix.NFTA_CHAIN_HOOK, func() {
			b.Number(unix.NFTA_HOOK_HOOKNUM, base.Number)
			b.Number(unix.NFTA_HOOK_PRIORITY, uint32(base.Priority))
		})
		b.Number(unix.NFTA_CHAIN_POLICY, 1) // NF_ACCEPT
		b.Text(unix.NFTA_CHAIN_TYPE, base.Type)
	})
}

func (b *Batch) DeleteChain(t Table, name string) {
	b.Message(unix.NFT_MSG_DELCHAIN, 0, t.Family, func() {
		b.Text(unix.NFTA_CHAIN_TABLE, t.Name)
		b.Text(unix.NFTA_CHAIN_NAME, name)
	})
}

// AddRule appends a rule to a chain. write appends the rule's expressions.
func (b *Batch) AddRule(t Table, chain, comment string, write func()) {
	b.Message(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND, t.Family, func() {
		b.Text(unix.NFTA_RULE_TABLE, t.Name)
		b.Text(unix.NFTA_RULE_CHAIN, chain)
		b.Nested(unix.NFTA_RULE_EXPRESSIONS, write)
		b.Bytes(unix.NFTA_RULE_USERDATA, append([]byte{userComment, byte(len(comment) + 1)}, comment+"\x00"...))
	})
}

// Expression appends an expression to a rule. write appends the expression's attributes.
func (b *Batch) Expression(name string, write func()) {
	b.Nested(unix.NFTA_LIST_ELEM, func() {
		b.Text(unix.NFTA_EXPR_NAME, name)
		b.Nested(unix.NFTA_EXPR_DATA, write)
	})
}

// DeleteRules deletes all rules of a chain.
func (b *Batch) DeleteRules(t Table, chain string) {
	b.Message(unix.NFT_MSG_DELRULE, 0, t.Family, func() {
		b.Text(unix.NFTA_RULE_TABLE, t.Name)
		b.Text(unix.NFTA_RULE_CHAIN, chain)
	})
}

func (b *Batch) DeleteRule(t Table, chain string, handle uint64) {
	b.Message(unix.NFT_MSG_DELRULE, 0, t.Family, func() {
		b.Text(unix.NFTA_RULE_TABLE, t.Name)
		b.Text(unix.NFTA_RULE_CHAIN, chain)
		b.Bytes(unix.NFTA_RULE_HANDLE, binary.BigEndian.AppendUint64(nil, handle))
	})
}
