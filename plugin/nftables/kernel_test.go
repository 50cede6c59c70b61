// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/dump"
	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
)

func prefixes(name string, texts ...string) capture.List[netip.Prefix] {
	list := capture.List[netip.Prefix]{Name: name}
	for _, text := range texts {
		list.Values = append(list.Values, netip.MustParsePrefix(text))
	}
	return list
}

func list[T any](name string, values ...T) capture.List[T] {
	return capture.List[T]{Name: name, Values: values}
}

func ports(name string, ranges ...[2]uint16) (l capture.List[capture.PortRange]) {
	l.Name = name
	for _, r := range ranges {
		l.Values = append(l.Values, capture.PortRange{First: r[0], Last: r[1]})
	}
	return l
}

// everything returns rules with each condition and each action.
func everything() capture.Ruleset {
	var matches, udp []capture.Rule
	for i, m := range []capture.Match{
		{},
		{Family: capture.IPv4},
		{Family: capture.IPv6},
		{Protocol: capture.TCP},
		{Protocol: capture.UDP},
		{In: list("", "eth0")},
		{In: list("ins", "eth0", "eth1")},
		{Out: list("", "eth0")},
		{Out: list("outs", "eth2", "a-name-of-15-by")},
		{FromLo: true},
		{ToLo: true},
		{Src: prefixes("", "10.0.0.1/32")},
		{Src: prefixes("", "10.0.0.0/9")},
		{Src: prefixes("src4", "10.0.0.1/32", "10.1.0.0/16", "255.0.0.0/8")},
		{Src: prefixes("", "0.0.0.0/0")},
		{Dst: prefixes("", "fd00::1/128")},
		{Dst: prefixes("", "fd00::/12")},
		{Dst: prefixes("dst6", "fd01::/16", "fd00::1/128", "ff00::/8")},
		{Dst: prefixes("", "::/0")},
		{Dst: prefixes("", "10.0.0.2/32")},
		{Src: prefixes("", "fd00::2/128")},
		{Protocol: capture.TCP, DstPort: ports("", [2]uint16{80, 80})},
		{Protocol: capture.UDP, DstPort: ports("", [2]uint16{80, 90})},
		{Protocol: capture.TCP, DstPort: ports("ports", [2]uint16{1, 1}, [2]uint16{80, 90}, [2]uint16{65000, 65535})},
		{UID: list[uint32]("", 1337)},
		{UID: list[uint32]("uids", 1, 1<<20)},
		{GID: list[uint32]("", 1337)},
		{GID: list[uint32]("gids", 1, 1<<20)},
		{Mark: 1},
		{ExceptMark: 2},
		{ConnMark: 3},
		{ExceptConnMark: 4},
		{ForeignSource: true},
		{OwnSource: true},
		{ForeignDst: true},
		{Protocol: capture.TCP, Begins: true},
		{Protocol: capture.TCP, Accepts: true},
		{Protocol: capture.TCP, Continues: true},
		{Invalid: true},
		{Unconfirmed: true},
		{Confirmed: true},
		{Original: true},
		{Answer: true},
		{Protocol: capture.ICMP, ICMPTypes: capture.TypeRange{First: 3, Last: 3}},
		{Protocol: capture.ICMPv6, ICMPTypes: capture.TypeRange{First: 133, Last: 136}},
		{Family: capture.IPv6, HopLimit: 255},
		{Translated: true},
		{Assured: true},
	} {
		matches = append(matches, capture.Rule{Match: m, Do: capture.Action{Verdict: capture.Return}, Why: fmt.Sprintf("condition %d", i)})
	}
	for i, do := range []capture.Action{
		{Verdict: capture.Drop},
		{Verdict: capture.Reject},
		{Verdict: capture.Jump, Chain: "CONDITIONS"},
		{Verdict: capture.Goto, Chain: "CONDITIONS"},
		{Verdict: capture.SetMark, Mark: 5},
		{Verdict: capture.SetConnMark, Mark: 6},
	} {
		udp = append(udp, capture.Rule{Match: capture.Match{Protocol: capture.TCP}, Do: do, Why: fmt.Sprintf("action %d", i)})
	}
	one := func(do capture.Action) []capture.Rule {
		return []capture.Rule{{Match: capture.Match{Protocol: capture.TCP}, Do: do, Why: string(do.Verdict)}}
	}
	return capture.Ruleset{Chains: []capture.Chain{
		{Table: capture.Filter, Name: "CONDITIONS", Rules: matches},
		{Table: capture.Filter, Hook: capture.Output, Name: "OUTPUT", Rules: udp},
		{Table: capture.NAT, Hook: capture.Output, Name: "OUTPUT", Rules: one(capture.Action{Verdict: capture.Redirect, Port: 15001})},
		{Table: capture.Mangle, Hook: capture.Output, Name: "OUTPUT"},
		{Table: capture.Filter, Hook: capture.Input, Name: "INPUT"},
		{Table: capture.Filter, Hook: capture.Forward, Name: "FORWARD"},
		{Table: capture.Mangle, Hook: capture.Prerouting, Name: "PREROUTING", Rules: one(capture.Action{Verdict: capture.TProxy, Port: 15006, Mark: 7, ConnMark: 8})},
		{Table: capture.Mangle, Hook: capture.Postrouting, Name: "POSTROUTING"},
		{Table: capture.Raw, Hook: capture.Prerouting, Name: "PREROUTING", Rules: one(capture.Action{Verdict: capture.SetZone, Zone: 9})},
	}}.WithStamp()
}

func apply(ctx context.Context, t *testing.T, host *lab.Host, rs capture.Ruleset) (err error) {
	t.Helper()
	host.Within(t, func() error {
		err = Backend{}.Apply(ctx, rs)
		return nil
	})
	return err
}

func read(t *testing.T, host *lab.Host) (d dump.Dump) {
	t.Helper()
	host.Within(t, func() (err error) {
		d, err = Backend{}.Dump(t.Context())
		return err
	})
	return d
}

// TestAsNFT expects nft to list the rules that were sent by netlink like those that it loads as text.
func TestAsNFT(t *testing.T) {
	lab.RequireProgram(t, "nft")
	ours, theirs := lab.StartHost(t), lab.StartHost(t)
	lab.Check(t, apply(t.Context(), t, ours, everything()))
	theirs.Load(t, everything().String())
	var texts []string
	for _, host := range []*lab.Host{ours, theirs} {
		host.Within(t, func() error {
			text, err := exec.CommandContext(t.Context(), "nft", "list", "ruleset").Output()
			texts = append(texts, string(text))
			return err
		})
	}
	if diff := cmp.Diff(texts[1], texts[0]); diff != "" {
		t.Error(diff)
	}
	if name := (Backend{}).Name(); name != config.NFTables {
		t.Errorf("name %s", name)
	}
}

// TestDump names each change of the rules, and no rule of another table.
func TestDump(t *testing.T) {
	host := lab.StartHost(t)
	host.Load(t, "table inet other { set gids { type gid; elements = { 7 }; }; chain filter_OUTPUT { counter; }; }\ntable ip capture-cni { chain filter_OUTPUT { }; }")
	lab.Check(t, apply(t.Context(), t, host, everything()))
	open, err := os.ReadDir("/proc/self/fd")
	lab.Check(t, err)
	want := read(t, host)
	if after, err := os.ReadDir("/proc/self/fd"); err != nil || len(after) > len(open) {
		t.Errorf("%d descriptors are open, before it were %d; %v", len(after), len(open), err)
	}
	if names := len(want.Objects); names != 1+1+9+7 {
		t.Errorf("%d objects: %v", names, want.Objects)
	}
	difference := func(change string) []string {
		host.Load(t, change)
		return dump.Diff(want, read(t, host))
	}
	for _, step := range []struct {
		change string
		want   []string
	}{
		{"flush chain inet other filter_OUTPUT", nil},
		{"delete element inet capture-cni gids { 1 }", []string{"missing: element 1 of set gids"}},
		{"add element inet capture-cni gids { 1, 5 }", []string{"unexpected: element 5 of set gids"}},
		{"delete element inet capture-cni gids { 5 }; add element inet capture-cni ports { 70-75 }", []string{"unexpected: element 70 of set ports", "unexpected: the end of a range before 76 of set ports"}},
		{"delete element inet capture-cni ports { 70-75 }; delete element inet capture-cni src4 { 10.1.0.0/16 }", []string{"missing: element 10.1.0.0 of set src4", "missing: the end of a range before 10.2.0.0 of set src4"}},
		{"add element inet capture-cni src4 { 10.1.0.0/16 }; flush chain inet capture-cni nat_OUTPUT", []string{`missing: rule "redirect" of chain nat_OUTPUT`}},
		{`add rule inet capture-cni nat_OUTPUT meta l4proto tcp counter redirect to :15002 comment "redirect"`, []string{`missing: rule "redirect" of chain nat_OUTPUT`, `unexpected: rule "redirect" of chain nat_OUTPUT`}},
		{`flush chain inet capture-cni nat_OUTPUT; add rule inet capture-cni nat_OUTPUT meta l4proto tcp counter redirect to :15001 comment "redirect"`, nil},
		{"add chain inet capture-cni new; add set inet capture-cni more { type uid; }", []string{"unexpected: chain new", "unexpected: set more"}},
		{"delete chain inet capture-cni new; delete set inet capture-cni more; chain inet capture-cni mangle_OUTPUT { policy drop; }", []string{"changed: chain mangle_OUTPUT"}},
		{"chain inet capture-cni mangle_OUTPUT { policy accept; }", nil},
		{"table inet capture-cni { flags dormant; }", []string{"changed: table capture-cni"}},
	} {
		got := difference(step.change)
		if slices.Sort(got); !slices.Equal(got, step.want) {
			t.Errorf("after %q: got %q, want %q", step.change, got, step.want)
		}
	}
	lab.WithoutDescriptors(t, func() {
		if _, err := (Backend{}).Dump(t.Context()); !errors.Is(err, unix.EMFILE) {
			t.Errorf("without a socket: got error %v", err)
		}
	})
}

// TestUnanswered expects a transaction that was committed to succeed without its answer, and one
// that was refused to fail with or without it.
func TestUnanswered(t *testing.T) {
	host := lab.StartHost(t)
	ended, end := context.WithCancel(t.Context())
	end()
	if err := apply(ended, t, host, everything()); err != nil {
		t.Errorf("committed: %v", err)
	}
	host.Within(t, func() error {
		handle, err := nfnetlink.TableHandle(t.Context(), capture.TableName)
		if err == nil {
			err = CommitRules(ended, nfnetlink.NewBatch(), everything(), handle)
		}
		if !errors.Is(err, nfnetlink.ErrUnanswered) || !strings.HasPrefix(err.Error(), "committing table inet capture-cni: the kernel's answer is lost") {
			t.Errorf("refused, unanswered: %v", err)
		}
		return nil
	})
	if err := apply(t.Context(), t, host, everything()); !errors.Is(err, unix.EEXIST) {
		t.Errorf("refused: %v", err)
	}
	empty := lab.StartHost(t)
	rs := everything()
	rs.Chains[1].Rules = append(rs.Chains[1].Rules, capture.Rule{Do: capture.Action{Verdict: capture.Jump, Chain: "NOWHERE"}})
	if err := apply(ended, t, empty, rs); !errors.Is(err, nfnetlink.ErrUnanswered) {
		t.Errorf("refused, unanswered, without a table: %v", err)
	}
	empty.Within(t, func() error {
		if err := CommitRules(ended, nfnetlink.NewBatch(), rs, 5); !errors.Is(err, nfnetlink.ErrUnanswered) {
			t.Errorf("refused, unanswered, with a table that is gone: %v", err)
		}
		return nil
	})
}
