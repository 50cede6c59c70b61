// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// TestCheck changes what Apply made, in every way that changes what packets
// meet, and wants each change named.
func TestCheck(t *testing.T) {
	t.Parallel()
	const backend = config.NFTables
	lab.RequireRoot(t)
	for _, test := range []struct {
		name   string
		change func(t *testing.T, pod *lab.Host)
		want   string
	}{
		{"nothing", func(*testing.T, *lab.Host) {}, ""},
		{"removed rule", func(t *testing.T, pod *lab.Host) {
			pod.Load(t, "delete rule inet capture-cni nat_ISTIO_OUTPUT handle "+handleOf(t, pod, "nat_ISTIO_OUTPUT", "localhost"))
		}, `missing: rule "localhost" of chain nat_ISTIO_OUTPUT`},
		{"added rule", scripted("insert rule inet capture-cni nat_OUTPUT counter accept"), "unexpected: a rule without comment of chain nat_OUTPUT"},
		{"added rule that bears a comment of ours", scripted(`insert rule inet capture-cni nat_OUTPUT accept comment "outbound TCP"`), `unexpected: rule "outbound TCP" of chain nat_OUTPUT`},
		{"changed rule", func(t *testing.T, pod *lab.Host) {
			handle := handleOf(t, pod, "nat_ISTIO_REDIRECT", "to the proxy's outbound port")
			pod.Load(t, "replace rule inet capture-cni nat_ISTIO_REDIRECT handle "+handle+` meta l4proto tcp counter redirect to :15002 comment "to the proxy's outbound port"`)
		}, `missing: rule "to the proxy's outbound port" of chain nat_ISTIO_REDIRECT`},
		{"other words in a comment", func(t *testing.T, pod *lab.Host) {
			handle := handleOf(t, pod, "nat_ISTIO_REDIRECT", "to the proxy's outbound port")
			pod.Load(t, "replace rule inet capture-cni nat_ISTIO_REDIRECT handle "+handle+` meta l4proto tcp counter redirect to :15001 comment "other words"`)
		}, ""},
		{"reordered rules", func(t *testing.T, pod *lab.Host) {
			handle := handleOf(t, pod, "nat_ISTIO_PROXY", "the proxy's tunnel port")
			pod.Load(t, "delete rule inet capture-cni nat_ISTIO_PROXY handle "+handle+"\n"+
				`insert rule inet capture-cni nat_ISTIO_PROXY tcp dport 15008 counter return comment "the proxy's tunnel port"`)
		}, "reordered: rules of chain nat_ISTIO_PROXY"},
		{"added element", scripted("add element inet capture-cni exclude_inbound_ports { 8080 }"), "unexpected: element 8080 of set exclude_inbound_ports\nunexpected: the end of a range before 8081"},
		{"removed element", scripted("delete element inet capture-cni exclude_inbound_ports { 15090 }"), "missing: element 15090 of set exclude_inbound_ports"},
		{"dormant table", scripted("add table inet capture-cni { flags dormant; }"), "changed: table capture-cni"},
		{"policy", scripted("add chain inet capture-cni nat_OUTPUT { policy drop; }"), "changed: chain nat_OUTPUT"},
		{"another chain", scripted("add chain inet capture-cni early { type filter hook output priority -200; }"), "unexpected: chain early"},
		{"more rules than are read", scripted(strings.Repeat("add rule inet capture-cni nat_OUTPUT counter\n", 5001)), "unexpected: the network namespace holds more than 5000 rules in table inet capture-cni"},
		{"no table", scripted("delete table inet capture-cni"), "missing: table capture-cni"},
		{"no ::6", run("ip", "address", "delete", "::6/128", "dev", "lo"), "missing: address ::6/128 of lo"},
		{"lo down", run("ip", "link", "set", "lo", "down"), "down: interface lo"},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := lab.StartHost(t)
			rs := decide(t, injected(nil, nil), dualStack())
			netns := open(t, pod, backend)
			lab.Check(t, netns.Apply(rs))
			test.change(t, pod)
			before := list(t, pod, "ruleset")
			differences, err := netns.Check(rs)
			lab.Check(t, err)
			got := strings.Join(differences, "\n")
			if test.want == "" && got != "" || !strings.Contains(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if after := list(t, pod, "ruleset"); after != before {
				t.Errorf("a check changed the rules:\n%s", after)
			}
		})
	}
}

func scripted(script string) func(*testing.T, *lab.Host) {
	return func(t *testing.T, pod *lab.Host) {
		t.Helper()
		pod.Load(t, script)
	}
}

func run(name string, args ...string) func(*testing.T, *lab.Host) {
	if strings.HasSuffix(name, "-legacy") {
		args = append([]string{"--wait"}, args...) // its lock is the whole machine's
	}
	return func(t *testing.T, pod *lab.Host) {
		t.Helper()
		lab.Check(t, pod.Do(func() error { return exec.CommandContext(t.Context(), name, args...).Run() }))
	}
}

// handleOf finds a rule by its comment.
func handleOf(t *testing.T, pod *lab.Host, chain, comment string) string {
	t.Helper()
	listing := list(t, pod, "-a", "chain", "inet", capture.TableName, chain)
	match := regexp.MustCompile(`comment "` + regexp.QuoteMeta(comment) + `" # handle (\d+)`).FindStringSubmatch(listing)
	if match == nil {
		t.Fatalf("chain %s has no rule %q:\n%s", chain, comment, listing)
	}
	return match[1]
}
