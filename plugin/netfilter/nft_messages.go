// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"encoding/binary"
	"fmt"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// nftTable is a table of nf_tables.
type nftTable struct {
	family byte
	name   string
}

// Numbers of the kernel that golang.org/x/sys lacks: NF_INET_PRE_ROUTING,
// NF_INET_LOCAL_OUT and NF_ACCEPT.
const (
	hookPrerouting  = 0
	hookOutput      = 3
	hookPostrouting = 4
	verdictAccept   = 1
)

func inetTable(name string) nftTable { return nftTable{unix.NFPROTO_INET, name} }

// hookedAt is where the kernel calls a chain.
type hookedAt struct {
	hook     uint32
	priority int32
	kind     string // "filter", "nat" or "route"
}

func (b *batch) createTable(t nftTable, flags uint16) {
	b.message(unix.NFT_MSG_NEWTABLE, flags, t.family, func() {
		b.text(unix.NFTA_TABLE_NAME, t.name)
		b.number(unix.NFTA_TABLE_FLAGS, 0)
	})
}

func (b *batch) deleteTable(t nftTable) {
	b.message(unix.NFT_MSG_DELTABLE, 0, t.family, func() { b.text(unix.NFTA_TABLE_NAME, t.name) })
}

// addChain adds a chain; base is nil for one that rules jump to.
func (b *batch) addChain(t nftTable, name string, base *hookedAt) {
	b.message(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, t.family, func() {
		b.text(unix.NFTA_CHAIN_TABLE, t.name)
		b.text(unix.NFTA_CHAIN_NAME, name)
		if base == nil {
			return
		}
		b.nested(unix.NFTA_CHAIN_HOOK, func() {
			b.number(unix.NFTA_HOOK_HOOKNUM, base.hook)
			b.number(unix.NFTA_HOOK_PRIORITY, uint32(base.priority))
		})
		b.number(unix.NFTA_CHAIN_POLICY, verdictAccept)
		b.text(unix.NFTA_CHAIN_TYPE, base.kind)
	})
}

func (b *batch) deleteChain(t nftTable, name string) {
	b.message(unix.NFT_MSG_DELCHAIN, 0, t.family, func() {
		b.text(unix.NFTA_CHAIN_TABLE, t.name)
		b.text(unix.NFTA_CHAIN_NAME, name)
	})
}

// addRule appends a rule to a chain.
func (b *batch) addRule(t nftTable, chain, comment string, expressions []expr.Any) error {
	encoded := make([][]byte, len(expressions))
	for i, expression := range expressions {
		var err error
		if encoded[i], err = expr.Marshal(t.family, expression); err != nil {
			return fmt.Errorf("encoding a rule of chain %s: %w", chain, err)
		}
	}
	b.message(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND, t.family, func() {
		b.text(unix.NFTA_RULE_TABLE, t.name)
		b.text(unix.NFTA_RULE_CHAIN, chain)
		b.nested(unix.NFTA_RULE_EXPRESSIONS, func() {
			for _, e := range encoded {
				b.bytes(unix.NFTA_LIST_ELEM|unix.NLA_F_NESTED, e)
			}
		})
		b.bytes(unix.NFTA_RULE_USERDATA, encodeComment(comment))
	})
	return nil
}

// deleteRules deletes all rules of a chain.
func (b *batch) deleteRules(t nftTable, chain string) {
	b.message(unix.NFT_MSG_DELRULE, 0, t.family, func() {
		b.text(unix.NFTA_RULE_TABLE, t.name)
		b.text(unix.NFTA_RULE_CHAIN, chain)
	})
}

func (b *batch) deleteRule(t nftTable, chain string, handle uint64) {
	b.message(unix.NFT_MSG_DELRULE, 0, t.family, func() {
		b.text(unix.NFTA_RULE_TABLE, t.name)
		b.text(unix.NFTA_RULE_CHAIN, chain)
		b.bytes(unix.NFTA_RULE_HANDLE, binary.BigEndian.AppendUint64(nil, handle))
	})
}
