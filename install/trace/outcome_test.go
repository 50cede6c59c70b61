// SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/trace"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// TestMeters bounds the outcomes: each of nat's exemptions in every golden case has a known
// reason, all outcomes are in the list, and one that no case has is only a reserve.
func TestMeters(t *testing.T) {
	t.Parallel()
	reserve := trace.Outcome{Decision: "exempt", Reason: "other"}
	met := map[trace.Outcome]bool{reserve: true}
	cases, _ := filepath.Glob("../../plugin/capture/testdata/*/pod.yaml")
	for _, path := range cases {
		rs := lab.ReadCase(t, filepath.Dir(path)).Rules(t)
		counted := map[trace.Meter]bool{}
		for _, m := range trace.Meters(rs) {
			met[m.Of] = true
			if m.Of == reserve {
				t.Errorf("%s: rule %d of %s has no reason", path, m.Rule+1, m.Chain)
			}
			counted[trace.Meter{Chain: m.Chain, Rule: m.Rule}] = true
		}
		for _, chain := range rs.Chains {
			for i, r := range chain.Rules {
				decides := slices.Contains([]capture.Verdict{capture.Return, capture.Redirect, capture.Translate}, r.Do.Verdict) &&
					(!rs.HasFence() || r.Why != "rerouted interface, other range") // the fence decides about these
				isCounted := counted[trace.Meter{Chain: chain.NFTName(), Rule: i}]
				if chain.Table == capture.NAT && chain.Hook == "" && r.Do.Verdict != capture.Jump && r.Do.Verdict != capture.Goto && isCounted != decides {
					t.Errorf("%s: rule %d of %s is counted: %v: %s", path, i+1, chain.NFTName(), isCounted, r.Why)
				}
			}
		}
	}
	word := regexp.MustCompile(`^[a-z0-9_]+$`)
	all := trace.Outcomes()
	for _, of := range all {
		if !met[of] || !word.MatchString(of.Decision) || !word.MatchString(of.Reason) {
			t.Errorf("%+v: a case has it: %v", of, met[of])
		}
	}
	for of := range met {
		if !slices.Contains(all, of) {
			t.Errorf("%+v is not in the list", of)
		}
	}
}

// TestGoldenMeters compares the outcome of each rule that counts packets, in all golden cases, with a file.
func TestGoldenMeters(t *testing.T) {
	t.Parallel()
	lines := map[string]bool{}
	cases, _ := filepath.Glob("../../plugin/capture/testdata/*/pod.yaml")
	for _, path := range cases {
		rs := lab.ReadCase(t, filepath.Dir(path)).Rules(t)
		for _, m := range trace.Meters(rs) {
			i := slices.IndexFunc(rs.Chains, func(c capture.Chain) bool { return c.NFTName() == m.Chain })
			lines[fmt.Sprintf("%s: %s: %s %s %s\n", m.Chain, rs.Chains[i].Rules[m.Rule].Why, map[bool]string{false: "plus", true: "minus"}[m.Negative], m.Of.Decision, m.Of.Reason)] = true
		}
	}
	lab.ExpectGolden(t, *update, filepath.Join("testdata", "meters.txt"), strings.Join(slices.Sorted(maps.Keys(lines)), ""))
}
