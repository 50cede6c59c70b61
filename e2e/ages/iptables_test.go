// SPDX-License-Identifier: Apache-2.0

package ages

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/iptables"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
)

// variants are the ends of the names of each backend's programs.
var variants = map[config.Backend]string{config.IPTablesNFT: "-nft", config.IPTablesLegacy: "-legacy"}

// TestNodeOfAnotherAge has a node with iptables of another age: the rules are those that
// the machine's iptables makes, its own iptables-save lists the same, and what it lists
// can be restored. CHECK finds no difference, with iptables-legacy even after the node has
// got another version, and DEL leaves no chain.
func TestNodeOfAnotherAge(t *testing.T) {
	forEachVariant(t, func(t *testing.T, tools toolset, backend config.Backend, rs capture.Ruleset) {
		reference := lab.StartHost(t)
		find(t, machine, backend).apply(t, reference, rs)
		pod, node := lab.StartHost(t), find(t, tools, backend)
		node.apply(t, pod, rs)
		for _, program := range programs(rs, backend) {
			want := save(t, machine, reference, program)
			for _, reader := range []struct {
				name string
				toolset
			}{{"the machine's", machine}, {"its own", tools}} {
				if diff := cmp.Diff(want, save(t, reader.toolset, pod, program)); diff != "" {
					t.Errorf("%s, listed by %s (-want +got):\n%s", program, reader.name, diff)
				}
			}
			restored := lab.StartHost(t)
			tools.run(t, restored, want, program+"-restore")
			if diff := cmp.Diff(want, save(t, tools, restored, program)); diff != "" {
				t.Errorf("%s-restore (-want +got):\n%s", program, diff)
			}
		}
		node.expectNoDifference(t, pod, rs)
		if backend == config.IPTablesLegacy { // versions of iptables-nft encode rules differently
			find(t, machine, backend).expectNoDifference(t, pod, rs)
		}
		lab.Check(t, pod.Do(func() error { return netfilter.Remove(t.Context()) }))
		for _, program := range programs(rs, backend) {
			if left := save(t, tools, pod, program); strings.Contains(left, "ISTIO") || strings.Contains(left, "CAPTURE") {
				t.Errorf("DEL left:\n%s", left)
			}
		}
	})
}

// TestListedByIPTables has iptables of any age list the rules that the machine's applied.
// iptables-nft before 1.8.8 leaves out the ports, marks and flags of newer ones' rules,
// and says nothing; chains, owners, addresses and comments are there.
func TestListedByIPTables(t *testing.T) {
	leftOut := regexp.MustCompile(` -m (mark (! )?--mark|tcp (! )?--(dport|tcp-flags \S+)|udp --[sd]port) \S+`)
	forEachVariant(t, func(t *testing.T, tools toolset, backend config.Backend, rs capture.Ruleset) {
		pod := lab.StartHost(t)
		find(t, machine, backend).apply(t, pod, rs)
		for _, program := range programs(rs, backend) {
			want := save(t, machine, pod, program)
			if backend == config.IPTablesNFT && strings.Contains(tools.run(t, pod, "", program, "--version"), "v1.8.7 ") {
				want = leftOut.ReplaceAllString(want, "")
			}
			if diff := cmp.Diff(want, save(t, tools, pod, program)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", program, diff)
			}
		}
	})
}

// TestIPTablesListedByNFT expects nft of any age to list the rules of its node's
// iptables-nft with all chains, and ports and marks. It shows no comments, not every
// conntrack zone, and less of IPv6: iptables-save does.
func TestIPTablesListedByNFT(t *testing.T) {
	options := regexp.MustCompile(`--(?:to-ports|on-port|dports?|sport|mark|set-mark) ([\d,]+)`)
	forEachSuite(t, func(t *testing.T, tools toolset) {
		node := find(t, tools, config.IPTablesNFT)
		for name, rs := range rulesets(t) {
			t.Run(name, func(t *testing.T) {
				pod := lab.StartHost(t)
				node.apply(t, pod, rs)
				listing := listRules(t, tools, pod)
				for _, chain := range rs.Chains {
					if !strings.Contains(listing, "\tchain "+chain.Name+" {\n") {
						t.Errorf("no chain %s", chain.Name)
					}
				}
				for _, option := range options.FindAllStringSubmatch(iptables.RestoreText(rs, capture.IPv4, nil), -1) {
					for value := range strings.SplitSeq(option[1], ",") {
						if !lists(listing, value) {
							t.Errorf("%s is not listed", option[0])
						}
					}
				}
				if t.Failed() {
					t.Log(listing)
				}
			})
		}
	})
}

// lists reports whether a listing has a port, or one of the two marks.
func lists(listing, value string) bool {
	hexadecimal := map[string]string{"1337": "0x0*539", "1338": "0x0*53a"}[value]
	return regexp.MustCompile(`\b(` + value + "|" + hexadecimal + `)\b`).MatchString(listing)
}
