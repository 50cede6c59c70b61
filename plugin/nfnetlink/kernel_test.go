// SPDX-License-Identifier: Apache-2.0

package nfnetlink

import (
	stdcmp "cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// ours is the table of these tests.
var ours = InetTable("ours")

// build queues a table with a base chain, a chain that it jumps to, and rules in both.
func build(b *Batch) error {
	b.CreateTable(ours, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	b.AddChain(ours, "base", &Hook{unix.NF_INET_LOCAL_OUT, -150, "filter"})
	b.AddChain(ours, "other", nil)
	err := addRule(b, "base", "why: first", &expr.Counter{}, &expr.Verdict{Kind: expr.VerdictJump, Chain: "other"})
	b.AddRule(ours, "base", "a second", func() {
		b.Expression("reject", func() { b.Number(unix.NFTA_REJECT_TYPE, unix.NFT_REJECT_TCP_RST) })
	})
	return errors.Join(err,
		addRule(b, "other", "why: set", &expr.Immediate{Register: 1, Data: []byte{7, 0, 0, 0}}, &expr.Ct{Key: expr.CtKeyMARK, Register: 1, SourceRegister: true}),
		addRule(b, "other", "why: mark", &expr.Ct{Key: expr.CtKeyMARK, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{9, 0, 0, 0}}, &expr.Verdict{Kind: expr.VerdictAccept}),
	)
}

// addRule adds a rule with expressions that google/nftables encodes.
func addRule(b *Batch, chain, comment string, expressions ...expr.Any) (err error) {
	b.AddRule(ours, chain, comment, func() {
		for _, e := range expressions {
			encoded, encodeErr := expr.Marshal(ours.Family, e)
			b.Bytes(unix.NFTA_LIST_ELEM|unix.NLA_F_NESTED, encoded)
			err = errors.Join(err, encodeErr)
		}
	})
	return err
}

const (
	hook   = "\t\ttype filter hook output priority mangle; policy accept;\n"
	first  = "\t\tcounter packets 0 bytes 0 jump other comment \"why: first\"\n"
	second = "\t\treject with tcp reset comment \"a second\"\n"
	set    = "\t\tct mark set 0x00000007 comment \"why: set\"\n"
	mark   = "\t\tct mark 0x00000009 accept comment \"why: mark\"\n"
	built  = "table inet ours {\n\tchain base {\n" + hook + first + second + "\t}\n\n\tchain other {\n" + set + mark + "\t}\n}\n"
)

// listed returns a namespace's rules as nft lists them.
func listed(t *testing.T, host *lab.Host, arguments ...string) (text string) {
	t.Helper()
	lab.RequireProgram(t, "nft")
	host.Within(t, func() error {
		out, err := exec.CommandContext(t.Context(), "nft", append(arguments, "list", "ruleset")...).Output()
		text = string(out)
		return err
	})
	return text
}

// commit commits a transaction in a namespace.
func commit(ctx context.Context, t *testing.T, host *lab.Host, queue func(b *Batch) error) (err error) {
	t.Helper()
	host.Within(t, func() error {
		b := NewBatch()
		err = errors.Join(queue(b), b.Commit(ctx))
		return nil
	})
	return err
}

// TestTransaction expects nft to list what transactions have added, without what they have deleted.
func TestTransaction(t *testing.T) {
	host := lab.StartHost(t)
	lab.Check(t, commit(t.Context(), t, host, build))
	if err := commit(t.Context(), t, host, build); !errors.Is(err, unix.EEXIST) {
		t.Errorf("creating it again: got error %v", err)
	}
	_, rest, _ := strings.Cut(listed(t, host, "--handle"), `comment "why: set" # handle `)
	var handle uint64
	_, _ = fmt.Sscan(rest, &handle)
	steps := []struct {
		remove func(b *Batch)
		gone   string
	}{
		{func(*Batch) {}, ""},
		{func(b *Batch) { b.DeleteRule(ours, "other", handle) }, set},
		{func(b *Batch) { b.DeleteRules(ours, "base") }, first + second},
		{func(b *Batch) { b.DeleteRules(ours, "other"); b.DeleteChain(ours, "other") }, "\n\tchain other {\n" + mark + "\t}\n"},
		{func(b *Batch) { b.DeleteTable(ours) }, "table inet ours {\n\tchain base {\n" + hook + "\t}\n}\n"},
	}
	want := built
	for i, step := range steps {
		host.Within(t, func() error {
			return Remove(t.Context(), func(_ context.Context, b *Batch) error { step.remove(b); return nil })
		})
		want = strings.Replace(want, step.gone, "", 1)
		if diff := cmp.Diff(want, listed(t, host)); diff != "" {
			t.Fatalf("after step %d: %s", i, diff)
		}
	}
}

// TestFaults expects the kernel's errors with the objects that they are about, without those
// that follow from others, and without open sockets.
func TestFaults(t *testing.T) {
	host := lab.StartHost(t)
	lab.Check(t, commit(t.Context(), t, host, build))
	ended, end := context.WithCancel(t.Context())
	end()
	jump := &expr.Verdict{Kind: expr.VerdictJump, Chain: "nowhere"}
	open, err := os.ReadDir("/proc/self/fd")
	lab.Check(t, err)
	for _, tt := range []struct {
		ctx   context.Context
		queue func(b *Batch) error
		want  string
	}{
		{ended, func(*Batch) error { return nil }, ""},
		{ended, func(b *Batch) error { b.AddChain(ours, "third", nil); return nil }, "the kernel's answer is lost: context canceled"},
		{t.Context(), func(b *Batch) error { b.DeleteChain(ours, "third"); return nil }, ""}, // the kernel has created it
		{t.Context(), func(b *Batch) error { b.DeleteChain(ours, "third"); return nil }, "no such file or directory"},
		{t.Context(), func(b *Batch) error { return addRule(b, "base", "why: nowhere", jump) }, `chain base, rule "why: nowhere": no such file or directory`},
		{t.Context(), func(b *Batch) error {
			return errors.Join(addRule(b, "nowhere", "why: one"), addRule(b, "nowhere", "why: two"))
		}, `chain nowhere, rule "why: one": no such file or directory`},
	} {
		if err := commit(tt.ctx, t, host, tt.queue); fmt.Sprint(err) != stdcmp.Or(tt.want, "<nil>") {
			t.Errorf("got error %v, want %q", err, tt.want)
		}
	}
	host.Within(t, func() error {
		got := Remove(t.Context(), func(_ context.Context, b *Batch) error {
			b.DeleteTable(InetTable("nowhere"))
			return errors.New("queued in part")
		})
		if want := "queued in part\nremoving our rules: no such file or directory"; got == nil || got.Error() != want {
			t.Errorf("got error %v, want %q", got, want)
		}
		if lacksNFTables(t.Context()) {
			t.Error("the kernel is said to have no nf_tables")
		}
		return nil
	})
	lab.WithoutDescriptors(t, func() {
		_, handleErr := TableHandle(t.Context(), ours.Name)
		b := NewBatch()
		b.DeleteTable(ours)
		if err := b.Commit(t.Context()); !errors.Is(err, unix.EMFILE) || !errors.Is(handleErr, unix.EMFILE) || lacksNFTables(t.Context()) {
			t.Errorf("without a socket: got errors %v, %v", err, handleErr)
		}
	})
	if after, err := os.ReadDir("/proc/self/fd"); err != nil || len(after) > len(open) {
		t.Errorf("%d descriptors are open, before it were %d; %v", len(after), len(open), err)
	}
}

// TestReadKernel reads the names, the handles and the comments that nft shows.
func TestReadKernel(t *testing.T) {
	host := lab.StartHost(t)
	host.Load(t, `
		table ip ours { chain base { accept comment "not ours"; accept comment "why: of IPv4"; }; }
		table ip6 ours { chain base { }; }
		table inet theirs { chain base { accept comment "why: theirs"; }; }
	`)
	lab.Check(t, commit(t.Context(), t, host, build))
	open, err := os.ReadDir("/proc/self/fd")
	lab.Check(t, err)
	host.Within(t, func() error {
		r, err := NewReader(t.Context())
		if err != nil {
			return err
		}
		defer r.Close()
		chains, err := ListChains(r)
		want := []ChainName{
			{FamilyNumber[capture.IPv4], "ours", "base"},
			{FamilyNumber[capture.IPv6], "ours", "base"},
			{unix.NFPROTO_INET, "theirs", "base"},
			{unix.NFPROTO_INET, "ours", "base"},
			{unix.NFPROTO_INET, "ours", "other"},
		}
		slices.SortFunc(chains, func(a, b ChainName) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		slices.SortFunc(want, func(a, b ChainName) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		if diff := cmp.Diff(want, chains); diff != "" || err != nil {
			t.Errorf("chains: %s, %v", diff, err)
		}
		for _, tt := range []struct {
			family               byte
			table, chain, prefix string
			want                 string
		}{
			{unix.NFPROTO_INET, "ours", "other", "why: ", "why: set"},
			{unix.NFPROTO_INET, "ours", "other", "why: m", "why: mark"},
			{unix.NFPROTO_INET, "ours", "base", "why: ", "why: first"},
			{unix.NFPROTO_INET, "ours", "base", "absent", ""},
			{unix.NFPROTO_IPV4, "ours", "base", "why: ", "why: of IPv4"},
			{unix.NFPROTO_IPV6, "ours", "base", "why: ", ""},
			{unix.NFPROTO_INET, "ours", "nowhere", "why: ", ""},
			{unix.NFPROTO_INET, "nowhere", "base", "why: ", ""},
		} {
			if got, err := FindComment(r, tt.family, tt.table, tt.chain, tt.prefix); got != tt.want || err != nil {
				t.Errorf("%+v: got %q, %v", tt, got, err)
			}
		}
		for table, want := range map[string]string{"ours": "table inet ours { # handle %d\n", "theirs": "table inet theirs { # handle %d\n", "nowhere": ""} {
			handle, err := TableHandle(t.Context(), table)
			if want != "" {
				want = fmt.Sprintf(want, handle)
			}
			if (handle == NoTable) != (want == "") || !strings.Contains(listed(t, &lab.Host{}, "--handle"), want) || err != nil {
				t.Errorf("table %s has handle %d, %v", table, handle, err)
			}
		}
		return nil
	})
	if after, err := os.ReadDir("/proc/self/fd"); err != nil || len(after) > len(open) {
		t.Errorf("%d descriptors are open, before it were %d; %v", len(after), len(open), err)
	}
}
