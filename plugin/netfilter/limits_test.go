// SPDX-License-Identifier: Apache-2.0

package netfilter_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	googlenftables "github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/lab/sample"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/dump"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
	"github.com/capture-cni/capture-cni/plugin/nftables"
)

// atMost bounds the processor's time that the guard spends on one pod.
const atMost = 5 * time.Second

// spent returns the time that a processor worked for a function, which stays on its thread:
// how long the function waits for one depends on the machine.
func spent(host *lab.Host, do func() error) (took time.Duration, err error) {
	err = host.Do(func() error {
		var before, after unix.Rusage
		err := errors.Join(unix.Getrusage(unix.RUSAGE_THREAD, &before), do(), unix.Getrusage(unix.RUSAGE_THREAD, &after))
		took = time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
		return err
	})
	return took, err
}

// repeated returns a script of n lines.
func repeated(n int, line func(i int) string) string {
	var script strings.Builder
	for i := range n {
		script.WriteString(line(i) + "\n")
	}
	return script.String()
}

// TestLimits fills a namespace that holds our rules, as a process of the pod
// with NET_ADMIN can. Reading fails soon, with an error that names the limit;
// Remove still removes our table.
func TestLimits(t *testing.T) {
	inspect := func(ctx context.Context) error {
		_, err := netfilter.Inspect(ctx)
		return err
	}
	dump := func(ctx context.Context) error {
		_, err := nftables.Backend{}.Dump(ctx)
		return err
	}
	fill := func(n int) string {
		return repeated(n, func(i int) string { return fmt.Sprintf(`-A PREROUTING -m comment --comment "%d" -j RETURN`, i) })
	}
	large := "comment \"" + strings.Repeat("x", 120) + "\""
	for _, test := range []struct {
		name   string
		read   func(context.Context) error
		script string
		want   string
	}{
		{
			"chains of another table", inspect,
			"add table ip other\n" + repeated(50_001, func(i int) string { return fmt.Sprintf("add chain ip other c%d", i) }),
			"more than 50000 chains",
		},
		{
			"the stamp's rules", inspect,
			repeated(5001, func(int) string { return "add rule inet capture-cni stamp counter" }),
			"more than 5000 rules in chain stamp",
		},
		{
			"rules", dump,
			repeated(5001, func(int) string { return "add rule inet capture-cni nat_OUTPUT counter" }),
			"more than 5000 rules in table inet capture-cni",
		},
		{
			"bytes of rules in table inet capture-cni", dump,
			repeated(4000, func(int) string {
				return "add rule inet capture-cni nat_OUTPUT " + strings.Repeat("ip6 saddr 2001:db8::/33 ", 6) + large
			}),
			"more than 4194304 bytes of rules in table inet capture-cni",
		},
		{
			"tables", dump,
			repeated(1001, func(i int) string { return fmt.Sprintf("add table inet t%d", i) }),
			"more than 1000 tables",
		},
		{
			"sets", dump,
			repeated(1001, func(i int) string { return fmt.Sprintf("add set inet capture-cni s%d { type mark; }", i) }),
			"more than 1000 sets in table inet capture-cni",
		},
		{
			"elements of a set", dump,
			"add set inet capture-cni more { type mark; }\n" + repeated(150_001, func(i int) string { return fmt.Sprintf("add element inet capture-cni more { %d }", i) }),
			"more than 150000 elements of sets in table inet capture-cni",
		},
		{
			"elements of many sets", dump,
			repeated(5, func(i int) string { return fmt.Sprintf("add set inet capture-cni s%d { type mark; }", i) }) +
				repeated(150_001, func(i int) string { return fmt.Sprintf("add element inet capture-cni s%d { %d }", i%5, i) }),
			"more than 150000 elements of sets in table inet capture-cni",
		},
		{
			"legacy rules", inspect,
			fill(90_000),
			"more than 24000000 bytes of legacy rules",
		},
		{
			"legacy rules of two tables", inspect,
			fill(30_000) + "COMMIT\n*mangle\n" + fill(30_000),
			"more than 24000000 bytes of legacy rules",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			host := lab.StartHost(t)
			sample.Apply(t, host, sample.Rules())
			host.Within(t, func() error { return test.read(t.Context()) }) // before it is filled
			if strings.HasPrefix(test.script, "-A") {
				host.Pipe(t, "*nat\n"+test.script+"COMMIT\n", "iptables-legacy-restore", "--wait", "--noflush")
			} else {
				host.Load(t, test.script)
			}
			took, err := spent(host, func() error { return test.read(t.Context()) })
			if _, ok := errors.AsType[nfnetlink.TooLarge](err); !ok || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if t.Logf("it took %s", took); took > atMost {
				t.Errorf("it took %s, want %s at most", took, atMost)
			}
			if took, _ := spent(host, func() error { return netfilter.Remove(t.Context()) }); took > atMost {
				t.Errorf("removing our rules took %s, want %s at most", took, atMost)
			}
			if err := host.Do(func() error {
				return exec.CommandContext(t.Context(), "nft", "list", "table", "inet", "capture-cni").Run()
			}); err == nil {
				t.Error("our table remains")
			}
		})
	}
}

// TestDeadline expects each read to fail after the end of its context.
func TestDeadline(t *testing.T) {
	t.Parallel()
	host := lab.StartHost(t)
	sample.Apply(t, host, sample.Rules())
	ended, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	canceled, cancelNow := context.WithCancel(t.Context())
	cancelNow()
	for _, ctx := range []context.Context{ended, canceled} {
		for name, read := range map[string]func() error{
			"Inspect": func() error { _, err := netfilter.Inspect(ctx); return err },
			"Dump":    func() error { _, err := nftables.Backend{}.Dump(ctx); return err },
		} {
			if err := host.Do(read); !errors.Is(err, ctx.Err()) {
				t.Errorf("%s: got %v, want %v", name, err, ctx.Err())
			}
		}
	}
}

// TestForgedUserData expects a rule with malformed user data to be read like any
// other.
func TestForgedUserData(t *testing.T) {
	t.Parallel()
	host := lab.StartHost(t)
	sample.Apply(t, host, sample.Rules())
	before := sample.Dump(t, host)
	addRule(t, host, []byte{0, 200, 'x'}) // with a length beyond its end
	if got := dump.Diff(before, sample.Dump(t, host)); len(got) != 1 || !strings.HasPrefix(got[0], "unexpected: a rule without comment of chain nat_OUTPUT") {
		t.Errorf("got %q", got)
	}
	sample.Inspect(t, host)
}

// TestLongLists expects sets of 10,000 and more elements, of every type, to be read
// back whole, and a missing element to be a difference.
func TestLongLists(t *testing.T) {
	t.Parallel()
	host := lab.StartHost(t)
	rs := sample.LongLists()
	sample.Apply(t, host, rs)
	want, err := netfilter.Reference(t.Context(), nftables.Backend{}, rs)
	if err != nil {
		t.Fatal(err)
	}
	found := sample.Dump(t, host)
	if differences := dump.Diff(want, found); len(differences) > 0 {
		t.Errorf("differences: %q", differences)
	}
	host.Load(t, "delete element inet capture-cni exclude_interfaces { eth7 }")
	if differences := dump.Diff(want, sample.Dump(t, host)); len(differences) != 1 || differences[0] != "missing: element eth7 of set exclude_interfaces" {
		t.Errorf("differences: %q", differences)
	}
}

// addRule adds a rule with this user data to a chain of ours.
func addRule(t *testing.T, host *lab.Host, userData []byte) {
	t.Helper()
	host.Within(t, func() error {
		conn, err := googlenftables.New()
		if err != nil {
			return err
		}
		table := &googlenftables.Table{Family: googlenftables.TableFamilyINet, Name: capture.TableName}
		conn.AddRule(&googlenftables.Rule{
			Table: table, Chain: &googlenftables.Chain{Table: table, Name: "nat_OUTPUT"}, UserData: userData,
			Exprs: []expr.Any{&expr.Counter{}},
		})
		return conn.Flush()
	})
}
