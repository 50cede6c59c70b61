// SPDX-License-Identifier: Apache-2.0

package netfilter_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/lab/sample"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
)

// TestTablesThatOthersUse removes rules of iptables-nft from tables that they share with
// other programs: what iptables created for ours goes, unless another program uses it.
func TestTablesThatOthersUse(t *testing.T) {
	t.Parallel()
	const table, output, prerouting, rule = "add table ip nat; ", "add chain ip nat OUTPUT { type nat hook output priority -100; }; ",
		"add chain ip nat PREROUTING { type nat hook prerouting priority -100; }; ", "add rule ip nat OUTPUT counter"
	for name, tt := range map[string]struct {
		before, after string // what another program does
		left          []string
		gone          []string
	}{
		"none":                    {"", "", nil, []string{"table"}},
		"a table of before":       {table, "", []string{"table ip nat"}, []string{"OUTPUT", "PREROUTING"}},
		"a chain of before":       {table + output, "", []string{"table ip nat", "chain OUTPUT"}, []string{"PREROUTING"}},
		"all of before":           {table + output + prerouting, "", []string{"chain OUTPUT", "chain PREROUTING"}, nil},
		"a rule of now":           {"", rule, []string{"chain OUTPUT", "counter"}, []string{"PREROUTING"}},
		"a chain of now":          {"", "add chain ip nat OTHER", []string{"chain OTHER"}, []string{"OUTPUT", "PREROUTING"}},
		"a base chain of now":     {"", "add chain ip nat INPUT { type nat hook input priority 100; }", []string{"chain INPUT"}, []string{"OUTPUT", "PREROUTING"}},
		"a chain deleted now":     {"", "flush chain ip nat PREROUTING; delete chain ip nat PREROUTING", nil, []string{"table"}},
		"a rule in front of ours": {"", "insert rule ip nat OUTPUT counter", []string{"chain OUTPUT", "counter"}, []string{"PREROUTING"}},
	} {
		t.Run(name, func(t *testing.T) {
			host := lab.StartHost(t)
			host.Load(t, tt.before)
			host.Within(t, func() error {
				backend, err := netfilter.Find(t.Context(), config.IPTablesNFT)
				if err != nil {
					return err
				}
				return backend.Apply(t.Context(), sample.Rules())
			})
			host.Load(t, tt.after)
			var listed []byte
			host.Within(t, func() (err error) {
				if err := netfilter.Remove(t.Context()); err != nil {
					return err
				}
				listed, err = exec.CommandContext(t.Context(), "nft", "list", "ruleset").Output()
				return err
			})
			for _, want := range tt.left {
				if !strings.Contains(string(listed), want) {
					t.Errorf("it lacks %q:\n%s", want, listed)
				}
			}
			for _, unwanted := range append(tt.gone, "CAPTURE_CNI", "table ip6") {
				if strings.Contains(string(listed), unwanted) {
					t.Errorf("it has %q:\n%s", unwanted, listed)
				}
			}
		})
	}
}
