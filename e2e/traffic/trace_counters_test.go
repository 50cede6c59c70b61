// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"encoding/json"
	"os/exec"
	"regexp"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/trace"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// counters are the packets that met each rule, by chain and number.
type counters map[string]map[int]int

func (c counters) add(t trace.Path) {
	for _, hook := range t.Hooks {
		for _, step := range hook.Steps {
			c.count(capture.NFTChain(step.Table, step.Chain), step.Number, 1)
		}
	}
}

func (c counters) count(chain string, number, packets int) {
	if c[chain] == nil {
		c[chain] = map[int]int{}
	}
	c[chain][number] += packets
}

// judgesAll matches the fence's chains that also meet later packets.
var judgesAll = regexp.MustCompile(`^ISTIO_FENCE(_OUT|_IN|_ICMP)?$`)

// compare leaves out the rules that later packets of a connection meet, too.
func (c counters) compare(t *testing.T, rs capture.Ruleset, kernels counters) {
	t.Helper()
	for _, chain := range rs.Chains {
		for i, rule := range chain.Rules {
			isQuery := chain.Table == capture.Raw && !rule.Match.DstPort.IsZero()
			inFence := judgesAll.MatchString(chain.Name) || judgesAll.MatchString(rule.Do.Chain)
			isSYN := chain.Table == capture.Filter && !inFence || chain.Name == "ISTIO_SYN" || rule.Match.Begins
			if chain.Table != capture.NAT && !isQuery && !isSYN {
				continue
			}
			name := chain.NFTName()
			if got, want := kernels[name][i+1], c[name][i+1]; got != want {
				t.Errorf("rule %d of %s (%s): the kernel counted %d packets, the evaluator %d", i+1, name, rule.Why, got, want)
			}
		}
	}
}

func readCounters(t *testing.T, pod *lab.Host) counters {
	t.Helper()
	var listed struct {
		NFTables []struct {
			Rule struct {
				Chain string
				Expr  []struct{ Counter *struct{ Packets int } }
			}
		}
	}
	lab.Check(t, pod.Do(func() error {
		out, err := exec.CommandContext(t.Context(), "nft", "--json", "list", "table", "inet", capture.TableName).Output()
		if err != nil {
			return err
		}
		return json.Unmarshal(out, &listed)
	}))
	found, numbers := counters{}, map[string]int{}
	for _, object := range listed.NFTables {
		numbers[object.Rule.Chain]++
		for _, expression := range object.Rule.Expr {
			if expression.Counter != nil {
				found.count(object.Rule.Chain, numbers[object.Rule.Chain], expression.Counter.Packets)
			}
		}
	}
	return found
}
