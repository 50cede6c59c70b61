// SPDX-License-Identifier: Apache-2.0

package nfnetlink

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestDescribe expects a kernel's error with the object that it is about, and with the
// modules of which one is missing.
func TestDescribe(t *testing.T) {
	t.Parallel()
	b := NewBatch()
	b.CreateTable(ours, 0)
	b.AddChain(ours, "base", &Hook{Type: "nat"})
	b.AddChain(ours, "plain", nil)
	for _, expressions := range [][]string{
		{"meta", "cmp", "counter"},
		{"redir"},
		{"ct", "payload", "log"},
		{"fib", "reject"},
	} {
		b.AddRule(ours, "base", fmt.Sprintf("of %d", len(expressions)), func() {
			for _, name := range expressions {
				b.Expression(name, func() {})
			}
		})
	}
	for _, kind := range []uint16{unix.NFT_MSG_NEWSET, unix.NFT_MSG_NEWSETELEM} {
		b.Message(kind, 0, ours.Family, func() { b.Text(unix.NFTA_SET_NAME, fmt.Sprintf("ports%d", kind)) })
	}
	last := len(b.Content)
	b.Message(unix.NFT_MSG_NEWCHAIN, 0, ours.Family, func() { b.Content = append(b.Content, 200, 0, 1, 0) }) // malformed
	lacks := func(modules, command string) string {
		return fmt.Sprintf("the kernel lacks %s: load the module on the node (modprobe %s; a file in /etc/modules-load.d for each boot), "+
			"or use a kernel that has it, or another backend: ", modules, command)
	}
	for i, tt := range []struct {
		prefix, lacks string
		absent        bool // ENOENT has the same cause
	}{
		{"", lacks("nf_tables", "nf_tables"), false},
		{"", "", false},
		{"chain base: ", lacks("nft_chain_nat", "nft_chain_nat"), true},
		{"chain plain: ", "", true},
		{`chain base, rule "of 3": `, "", true},
		{`chain base, rule "of 1": `, lacks("nft_redir", "nft_redir"), true},
		{`chain base, rule "of 3": `, lacks("nft_ct or nft_log", "-a nft_ct nft_log"), true},
		{`chain base, rule "of 2": `, lacks("nft_fib_inet or nft_reject_inet", "-a nft_fib_inet nft_reject_inet"), true},
		{"set ports9: ", "", true},
		{"set ports12: ", "", true},
		{"", "", true},
		{"", "", true},
	} {
		for _, fault := range []unix.Errno{unix.EPERM, unix.EOPNOTSUPP, unix.ENOENT} {
			want := tt.prefix + fault.Error()
			if fault == unix.EOPNOTSUPP || fault == unix.ENOENT && tt.absent {
				want = tt.prefix + tt.lacks + fault.Error()
			}
			err := b.describe(uint32(i+beginSequence), fault)
			if _, isLacking := errors.AsType[Lacking](err); err.Error() != want || !errors.Is(err, fault) || isLacking != strings.Contains(want, "lacks") {
				t.Errorf("message %d: got %v, want %s", i, err, want)
			}
		}
	}
	b.Content = b.Content[:last+unix.NLMSG_HDRLEN]
	if err := b.describe(3, unix.EPERM); err.Error() != "operation not permitted" {
		t.Errorf("of a transaction that is cut: %v", err)
	}
	if modules := modulesOf([]byte{4, 0, 1, 0}); modules != nil {
		t.Errorf("an expression without a name is of %q", modules)
	}
}

// TestAbsent expects a kernel without nfnetlink to have no tables.
func TestAbsent(t *testing.T) {
	t.Parallel()
	r := &Reader{ctx: t.Context(), socket: absent{}}
	defer r.Close()
	if chains, err := ListChains(r); len(chains) > 0 || err != nil {
		t.Errorf("got %v, %v", chains, err)
	}
}
