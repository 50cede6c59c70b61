// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/xtables"
)

// others are another program's rules, among which ours stand.
const others = `*mangle
-A PREROUTING -p udp -m mark --mark 0x1 -j ACCEPT
COMMIT
*nat
:OTHER - [0:0]
-A OUTPUT -p udp --dport 1 -j OTHER
-A OUTPUT -p udp --dport 2 -j OTHER
-A OUTPUT -p udp --dport 3 -j OTHER
-A OTHER -j RETURN
COMMIT
`

// legacyHost is a namespace with others' rules in both families.
func legacyHost(t *testing.T) (host *lab.Host, b Backend, rs capture.Ruleset) {
	t.Helper()
	lab.RequireRoot(t)
	lab.RequireProgram(t, "iptables-legacy")
	host = lab.StartHost(t)
	for _, program := range []string{"iptables-legacy-restore", "ip6tables-legacy-restore"} {
		host.Pipe(t, others, program)
	}
	b, err := Find(t.Context(), "", config.IPTablesLegacy)
	if err != nil {
		t.Fatal(err)
	}
	return host, b, capture.Rules(capture.Intent{
		Mesh: config.Istio,
		IPv6: capture.Captured, Transparent: true, CaptureDNS: true, OutboundPort: 15001, InboundPort: 15006, TunnelPort: 15008, DNSPort: 15053,
		ProxyUID: 1337, ProxyGID: 1337, LoopbackCIDR: netip.MustParsePrefix("127.0.0.1/32"),
		InboundPorts: capture.Everything[uint16](), OutboundRanges: capture.Everything[netip.Prefix](),
	})
}

// legacyRules returns the chains and rules of both families, in their order; a table, once
// it exists, can't be deleted.
func legacyRules(t *testing.T, host *lab.Host) (all []string) {
	t.Helper()
	host.Within(t, func() error {
		for _, program := range []string{"iptables-legacy-save", "ip6tables-legacy-save"} {
			text, err := exec.CommandContext(t.Context(), program).Output()
			if err != nil {
				return err
			}
			for _, table := range parseSaved(string(text)) {
				for _, rule := range table.rules {
					all = append(all, fmt.Sprintf("%s %s -A %s %s", program, table.name, rule.chain, rule.text))
				}
				for _, chain := range table.chains {
					if chain != strings.ToUpper(chain) || isOurs(chain) || chain == "OTHER" {
						all = append(all, fmt.Sprintf("%s %s -N %s", program, table.name, chain))
					}
				}
			}
		}
		return nil
	})
	return all
}

// TestLegacyUndone has the program of a family commit no table, some, or all, and fail: the
// rules of others are what stays, also of the family before.
func TestLegacyUndone(t *testing.T) {
	for _, family := range families {
		for commits, script := range map[string]string{
			"nothing":          `exit 1`,
			"the first table":  `printf '%s\n' "${input%%COMMIT*}COMMIT" | "$real" "$@"; exit 1`,
			"all but the last": `printf '%s\n' "${input%%\*nat*}" | "$real" "$@"; exit 1`,
			"all":              `printf '%s\n' "$input" | "$real" "$@"; exit 1`,
		} {
			t.Run(string(family)+" commits "+commits, func(t *testing.T) {
				host, b, rs := legacyHost(t)
				before := legacyRules(t, host)
				failing := b.programs[family]
				text := fmt.Sprintf("#!/bin/sh\nreal=%s\ninput=$(cat)\ncase \"$*\" in\n"+
					"*--counters*) printf '%%s\\n' \"$input\" | exec \"$real\" \"$@\" ;;\n*) %s ;;\nesac\n", failing.restore, script)
				failing.restore = filepath.Join(t.TempDir(), "restore")
				if err := lab.WriteProgram(failing.restore, []byte(text)); err != nil {
					t.Fatal(err)
				}
				b.programs[family] = failing
				if err := host.Do(func() error { return b.Apply(t.Context(), rs) }); err == nil {
					t.Fatal("no error")
				}
				if after := legacyRules(t, host); !slices.Equal(after, before) {
					t.Errorf("the rules are\n%s\nand were\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
				}
			})
		}
	}
}

// TestLegacyRemoved removes ours from among the rules of others, where several jumps lead to
// ours.
func TestLegacyRemoved(t *testing.T) {
	host, b, rs := legacyHost(t)
	before := legacyRules(t, host)
	host.Within(t, func() error { return b.Apply(t.Context(), rs) })
	const more = "*nat\n-I OUTPUT 2 -p udp --dport 4 -j ISTIO_OUTPUT\n-I OUTPUT 4 -p udp --dport 5 -g ISTIO_OUTPUT\nCOMMIT\n"
	for _, program := range []string{"iptables-legacy-restore", "ip6tables-legacy-restore"} {
		host.Pipe(t, more, program, "--noflush")
	}
	if len(legacyRules(t, host)) < len(before)+6 {
		t.Fatalf("ours are not there: %q", legacyRules(t, host))
	}
	for range 2 { // there is nothing to remove the second time
		host.Within(t, func() error { return RemoveLegacy(t.Context()) })
		if after := legacyRules(t, host); !slices.Equal(after, before) {
			t.Errorf("the rules are\n%s\nand were\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
		}
	}
}

// TestLegacyProgramNamed has a program fail that lists rules: the error names this program.
func TestLegacyProgramNamed(t *testing.T) {
	directory := t.TempDir()
	t.Setenv("PATH", directory+":"+os.Getenv("PATH"))
	for _, end := range []string{"", "-save", "-restore"} {
		if err := lab.WriteProgram(filepath.Join(directory, "ip6tables-legacy"+end), []byte("#!/bin/sh\nexit 3\n")); err != nil {
			t.Fatal(err)
		}
	}
	_, err := prepareLegacyTable(t.Context(), xtables.Table{Family: capture.IPv6, Name: "nat"})
	if want := "running " + directory + "/ip6tables-legacy: could not get iptables version: exit status 3"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestLookPath finds programs below a root, by the links that distributions make.
func TestLookPath(t *testing.T) {
	t.Parallel()
	for name, links := range map[string]map[string]string{
		"no link":                        {},
		"relative":                       {"usr/sbin/found": "real"},
		"relative, to another directory": {"usr/sbin/found": "../../usr/sbin/real"},
		"absolute":                       {"usr/sbin/found": "/usr/sbin/real"},
		"by Debian's alternatives": {
			"usr/sbin/found": "/etc/alternatives/found", "etc/alternatives/found": "/usr/sbin/variant", "usr/sbin/variant": "real",
		},
		"absolute, then from there":       {"usr/sbin/found": "/etc/alternatives/found", "etc/alternatives/found": "../../usr/sbin/real"},
		"missing: dangling":               {"usr/sbin/found": "elsewhere"},
		"missing: a loop":                 {"usr/sbin/found": "other", "usr/sbin/other": "found"},
		"missing: only outside the root":  {"usr/sbin/found": "/bin/sh"},
		"missing: the name of a host's":   {"usr/sbin/found": "sh"},
		"in the last directory, relative": {"bin/found": "../usr/sbin/real"},
	} {
		root := t.TempDir()
		for _, directory := range []string{"usr/sbin", "etc/alternatives", "bin"} {
			if err := os.MkdirAll(filepath.Join(root, directory), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		want := "/usr/sbin/found"
		if name == "no link" {
			want = "/usr/sbin/real"
		}
		if strings.HasPrefix(name, "in the last") {
			want = "/bin/found"
		}
		if err := os.WriteFile(filepath.Join(root, "usr/sbin/real"), nil, 0o755); err != nil {
			t.Fatal(err)
		}
		for link, target := range links {
			if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
				t.Fatal(err)
			}
		}
		path, err := lookPath(root, filepath.Base(want))
		if missing := strings.HasPrefix(name, "missing"); (err != nil) != missing || !missing && path != want {
			t.Errorf("%s: %q, %v", name, path, err)
		}
	}
}
