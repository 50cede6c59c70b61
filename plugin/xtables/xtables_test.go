// SPDX-License-Identifier: Apache-2.0

package xtables

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// entryOf returns an IPv4 entry whose target has this name and data.
func entryOf(target, data string) []byte {
	const size = 176
	entry := make([]byte, size)
	binary.NativeEndian.PutUint16(entry[84+targetOffset:], 112)
	binary.NativeEndian.PutUint16(entry[84+nextOffset:], size)
	copy(entry[112+targetName:], target)
	copy(entry[112+chainName:], data)
	return entry
}

// TestChains expects a chain for each entry that names one, and for no other.
func TestChains(t *testing.T) {
	t.Parallel()
	entries := slices.Concat(
		entryOf("", "ISTIO_INBOUND"), entryOf("ERROR", "A"), entryOf("REDIRECT", "ISTIO_INBOUND"),
		entryOf("ERROR", "ISTIO_OUTPUT"), entryOf("ERROR", "ERROR"))
	if got := families[capture.IPv4].chains(entries); !slices.Equal(got, []string{"A", "ISTIO_OUTPUT"}) {
		t.Errorf("got %q", got)
	}
	if got := families[capture.IPv4].chains(entryOf("ERROR", "")); got != nil {
		t.Errorf("a chain without a name: got %q", got)
	}
}

// TestTargets reads entries of all lengths, and nothing behind one of an impossible length.
func TestTargets(t *testing.T) {
	t.Parallel()
	entry := func(size, target, next int) []byte {
		e := bytes.Repeat([]byte{'x'}, size)
		binary.NativeEndian.PutUint16(e[84+targetOffset:], uint16(target))
		binary.NativeEndian.PutUint16(e[84+nextOffset:], uint16(next))
		return e
	}
	const shortest, x = 84 + nextOffset + 3, "x"
	chain := strings.Repeat(x, nameMax)
	for name, tt := range map[string]struct {
		entries         []byte
		targets, chains []string
	}{
		"a target of one byte":   {entry(115, 112, 115), []string{x}, []string{""}},
		"an empty target":        {entry(114, 112, 114), []string{""}, []string{""}},
		"no room for a target":   {entry(113, 112, 113), nil, nil},
		"just room for a chain":  {entry(174, 112, 174), []string{strings.Repeat(x, 60)}, []string{chain}},
		"no room for a chain":    {entry(173, 112, 173), []string{strings.Repeat(x, 59)}, []string{""}},
		"no length":              {entry(120, 0, 0), nil, nil},
		"longer than the table":  {entry(120, 112, 121), nil, nil},
		"the shortest":           {entry(shortest, shortest-targetName, shortest), []string{""}, []string{""}},
		"shorter than any entry": {entry(shortest-1, shortest-1-targetName, shortest-1), nil, nil},
		"two":                    {slices.Concat(entry(115, 112, 115), entry(116, 112, 116)), []string{x, "xx"}, []string{"", ""}},
	} {
		var targets, chains []string
		for target, chain := range families[capture.IPv4].targets(tt.entries) {
			targets, chains = append(targets, target), append(chains, chain)
		}
		if !slices.Equal(targets, tt.targets) || !slices.Equal(chains, tt.chains) {
			t.Errorf("%s: got %q, %q", name, targets, chains)
		}
	}
}

// TestKernel reads the tables of a namespace, those of IPv4 first, with their chains and targets.
func TestKernel(t *testing.T) {
	host, tables := lab.StartHost(t), []Table{{capture.IPv4, "nat"}, {capture.IPv6, "mangle"}}
	host.Within(t, func() error {
		if list, err := List(); len(list) > 0 || err != nil {
			t.Errorf("without tables: %v, %v", list, err)
		}
		return nil
	})
	for i, program := range []string{"iptables-legacy-restore", "ip6tables-legacy-restore"} {
		lab.RequireProgram(t, program)
		host.Pipe(t, fmt.Sprintf("*%s\n:A%[2]d -\n:B%[2]d -\n-A OUTPUT -j MARK --set-mark 1\n-A B%[2]d -j A%[2]d\nCOMMIT\n", tables[i].Name, i), program, "--wait")
	}
	open, err := os.ReadDir("/proc/self/fd")
	lab.Check(t, err)
	host.Within(t, func() error {
		if got := Names(); !slices.Equal(got, tables) {
			t.Errorf("names %v", got)
		}
		list, err := List()
		if want := (Tables{tables[0]: {"A0", "B0"}, tables[1]: {"A1", "B1"}}); err != nil || !maps.EqualFunc(list, want, slices.Equal) {
			t.Errorf("list %v, %v", list, err)
		}
		for _, table := range tables {
			var asked []string
			target, err := table.FindTarget(func(target string) bool { asked = append(asked, target); return target == "MARK" })
			if target != "MARK" || err != nil || slices.Contains(asked, "ERROR") {
				t.Errorf("%v: found %q of %q, %v", table, target, asked, err)
			}
			if target, err := table.FindTarget(func(target string) bool { return target == "REDIRECT" }); target != "" || err != nil {
				t.Errorf("%v: found %q, %v", table, target, err)
			}
			whole, err := table.Entries()
			if err != nil {
				return err
			}
			if again, err := table.entries(len(whole)); !bytes.Equal(again, whole) || err != nil {
				t.Errorf("%v, just of the limit: %d bytes, %v", table, len(again), err)
			}
			want := fmt.Sprintf("reading the legacy %s table %s: the network namespace holds more than %d bytes of legacy rules",
				table.Family, table.Name, MaxEntries)
			if _, err := table.entries(len(whole) - 1); err == nil || err.Error() != want {
				t.Errorf("%v: got error %v, want %s", table, err, want)
			}
		}
		if target, err := (Table{capture.IPv4, "nowhere"}).FindTarget(func(string) bool { return true }); target != "" || !errors.Is(err, unix.ENOENT) {
			t.Errorf("no such table: %q, %v", target, err)
		}
		lab.WithoutDescriptors(t, func() {
			if _, err := tables[0].Entries(); !errors.Is(err, unix.EMFILE) {
				t.Errorf("without a socket: got error %v", err)
			}
		})
		if after, err := os.ReadDir("/proc/self/fd"); err != nil || len(after) > len(open)+2 { // the namespaces of Within
			t.Errorf("%d descriptors are open, before it were %d; %v", len(after), len(open), err)
		}
		return nil
	})
}

// FuzzEntries parses entries that no kernel returns.
func FuzzEntries(f *testing.F) {
	f.Add(slices.Concat(entryOf("", ""), entryOf("ERROR", "ISTIO_OUTPUT"), entryOf("ERROR", "ERROR")))
	f.Add(slices.Concat(entryOf("", ""), entryOf("NOTRACK", ""), entryOf("ERROR", "ERROR")))
	f.Add(entryOf("ERROR", "X")[:100])
	f.Fuzz(func(t *testing.T, data []byte) {
		for family, legacy := range families {
			for target, chain := range legacy.targets(data) {
				if len(target)+len(chain) > len(data) {
					t.Errorf("%s: target %q, chain %q", family, target, chain)
				}
			}
			for _, name := range legacy.chains(data) {
				if len(name) > len(data) || name == "ERROR" {
					t.Errorf("%s: chain %q", family, name)
				}
			}
		}
	})
}
