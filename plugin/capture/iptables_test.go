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
)

// TestBothVariantsListTheSame loads every golden file by both variants of
// iptables-restore and wants them to list the same rules.
func TestBothVariantsListTheSame(t *testing.T) {
	lab.RequireRoot(t)
	cases, _ := filepath.Glob("testdata/*/pod.yaml")
	for _, path := range cases {
		rs := rulesOf(t, filepath.Dir(path))
		for _, family := range []capture.Family{capture.IPv4, capture.IPv6} {
			if family == capture.IPv6 && !rs.IPv6 {
				continue
			}
			t.Run(fmt.Sprintf("%s/%s", filepath.Base(filepath.Dir(path)), family), func(t *testing.T) {
				t.Parallel()
				text := rs.IPTables(family, nil)
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

// restored gives the rules that a variant lists after it restored a text.
// The order of chains differs, that of a chain's rules must not.
func restored(t *testing.T, program, text string) []string {
	t.Helper()
	host, err := lab.NewHost()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = host.Close() })
	var rules []string
	err = host.Do(func() error {
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

// TestLongListsForIPTables splits lists into as many rules as it takes.
func TestLongListsForIPTables(t *testing.T) {
	t.Parallel()
	ports := make([]uint16, 31)
	for i := range ports {
		ports[i] = uint16(i + 1)
	}
	rs := capture.Ruleset{Chains: []capture.Chain{{Table: capture.NAT, Name: "ISTIO_X", Rules: []capture.Rule{{
		Match: capture.Match{
			Protocol: capture.TCP,
			In:       capture.List[string]{Name: "i", Values: []string{"a", "b"}},
			DstPort:  capture.List[uint16]{Name: "p", Values: ports},
		},
		Do:  capture.Action{Verdict: capture.Return},
		Why: "why",
	}}}}}
	text := rs.IPTables(capture.IPv4, nil)
	if got := strings.Count(text, "-A ISTIO_X"); got != 6 {
		t.Errorf("%d rules, want 2 interfaces x 3 groups of ports:\n%s", got, text)
	}
	for _, rule := range []string{
		`-A ISTIO_X -i a -p tcp -m multiport --dports 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15 -m comment --comment "why" -j RETURN`,
		"-A ISTIO_X -i b -p tcp -m multiport --dports 31 -j RETURN",
	} {
		if !strings.Contains(text, rule+"\n") {
			t.Errorf("%q is missing in\n%s", rule, text)
		}
	}
}

func TestMade(t *testing.T) {
	t.Parallel()
	for note, made := range map[string]capture.Made{
		"made: table PREROUTING OUTPUT": {Table: true, Chains: []capture.Hook{capture.Prerouting, capture.Output}},
		"made: OUTPUT":                  {Chains: []capture.Hook{capture.Output}},
		"made: table":                   {Table: true},
		"":                              {},
	} {
		rs := capture.Ruleset{Chains: []capture.Chain{{Table: capture.NAT, Hook: capture.Output, Name: "OUTPUT"}}}
		text := rs.IPTables(capture.IPv4, map[capture.Table]capture.Made{capture.NAT: made})
		if note != "" && !strings.Contains(text, fmt.Sprintf("-A CAPTURE_CNI -m comment --comment %q -j RETURN\n", note)) || note == "" && strings.Contains(text, "made:") {
			t.Errorf("%+v: got\n%s", made, text)
		}
		if got, ok := capture.ParseMade(note); ok != (note != "") || cmp.Diff(got, made) != "" {
			t.Errorf("%q is read as %+v, %v", note, got, ok)
		}
	}
}

func FuzzParseMade(f *testing.F) {
	f.Add("made: table PREROUTING")
	f.Add("capture-cni rules v1 ipv4 0")
	f.Fuzz(func(t *testing.T, text string) {
		made, ok := capture.ParseMade(text)
		if !ok && (made.Table || len(made.Chains) > 0) {
			t.Errorf("%q is no note, and says %+v", text, made)
		}
	})
}
