// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/install/guard"
	"github.com/capture-cni/capture-cni/install/terms"
)

// TestFilledTable has a pod fill tables, as one with NET_ADMIN can: the guard is
// not busy with it for long, reports it as drifted, and repairs what it can.
func TestFilledTable(t *testing.T) {
	const atMost = 5 * time.Second
	many := func(n int, line string) string {
		var script strings.Builder
		for i := range n {
			script.WriteString(strings.ReplaceAll(line, "N", fmt.Sprint(i)) + "\n")
		}
		return script.String()
	}
	for _, tt := range []struct {
		name, script, reason string
		repaired             bool
	}{
		{"chains and rules", many(15_000, "add chain inet capture-cni cN\nadd rule inet capture-cni cN counter"), "more than 5000 rules", true},
		{"rules", many(5_001, "add rule inet capture-cni nat_OUTPUT counter"), "more than 5000 rules", true},
		{"rules that are still read", many(4_000, "add rule inet capture-cni nat_OUTPUT counter"), "... and 3980 more", true},
		{"elements", "add set inet capture-cni s { type mark; }\n" + many(150_001, "add element inet capture-cni s { N }"), "more than 150000 elements", true},
		{"another's chains", "add table ip other\n" + many(50_001, "add chain ip other cN"), "more than 50000 chains", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode()
			p := n.run(t, "web")
			p.capture(t, nil)
			p.host.Load(t, tt.script)
			for _, policy := range []guard.Policy{guard.ReportOnly, guard.InPlace} {
				keeper, registry := n.keeper(t, policy)
				began := time.Now()
				keeper.Round(t.Context())
				took := time.Since(began)
				if t.Logf("the round took %s", took); took > atMost {
					t.Errorf("the round took %s, want %s at most", took, atMost)
				}
				want := terms.Drifted
				if tt.repaired && policy == guard.InPlace {
					want = terms.Captured
				}
				expect(t, registry, map[terms.State]float64{want: 1})
				if policy == guard.InPlace {
					continue
				}
				out := explanation(t, keeper, "shop", "web")
				for range 20 { // a busy machine can use up the time of one
					if !strings.Contains(out, context.DeadlineExceeded.Error()) {
						break
					}
					out = explanation(t, keeper, "shop", "web")
				}
				if !strings.Contains(out, tt.reason) {
					t.Errorf("explain does not say %q:\n%s", tt.reason, out)
				}
			}
		})
	}
}
