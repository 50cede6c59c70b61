// SPDX-License-Identifier: Apache-2.0

package capture_test

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/iptables"
)

// TestBothVariantsListTheSame loads every golden file with both variants of
// iptables-restore and expects them to list the same rules.
func TestBothVariantsListTheSame(t *testing.T) {
	lab.RequireTime(t)
	lab.RequireRoot(t)
	cases, _ := filepath.Glob("testdata/*/pod.yaml")
	for _, path := range cases {
		rs := rulesOf(t, filepath.Dir(path))
		for _, family := range []capture.Family{capture.IPv4, capture.IPv6} {
			if len(rs.For(family).Chains) == 0 {
				continue
			}
			t.Run(fmt.Sprintf("%s/%s", filepath.Base(filepath.Dir(path)), family), func(t *testing.T) {
				t.Parallel()
				text := iptables.RestoreText(rs, family, nil)
				program := map[capture.Family]string{capture.IPv4: "iptables", capture.IPv6: "ip6tables"}[family]
				nft, legacy := restored(t, program+"-nft", text), restored(t, program+"-legacy", text)
				if diff := cmp.Diff(nft, legacy); diff != "" {
					t.Errorf("-nft +legacy:\n%s", diff)
				}
				if want := strings.Count(text, "\n-A "); len(nft) != want {
					t.Errorf("%d rules are listed, want %d", len(nft), want)
				}
			})
		}
	}
}

// restored returns the rules that a variant of iptables lists after restoring a text.
// They are sorted by chain, because the order of chains differs.
func restored(t *testing.T, program, text string) []string {
	t.Helper()
	host := lab.StartHost(t)
	var rules []string
	err := host.Do(func() error {
		restore := exec.CommandContext(t.Context(), program+"-restore", "--noflush")
		restore.Stdin = strings.NewReader(text)
		if out, err := restore.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		out, err := exec.CommandContext(t.Context(), program+"-save").Output()
		table := ""
		for line := range bytes.Lines(out) {
			switch line := strings.TrimSpace(string(line)); {
			case strings.HasPrefix(line, "*"):
				table = line
			case strings.HasPrefix(line, "-A"):
				rules = append(rules, table+" "+line)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	chain := func(rule string) string { return strings.Join(strings.Fields(rule)[:3], " ") }
	slices.SortStableFunc(rules, func(a, b string) int { return strings.Compare(chain(a), chain(b)) })
	return rules
}
