// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/kernel"
)

// maskedRule is another program's policy routing, which takes mark 1337, too, and
// leads nowhere.
var maskedRule = []string{
	"ip route add blackhole default table 200", "ip rule add fwmark 0x400/0x400 priority 100 lookup 200",
	"ip -6 route add blackhole default table 200", "ip -6 rule add fwmark 0x400/0x400 priority 100 lookup 200",
}

// TestPolicyRuleComesFirst hands connections to the proxy and on in the client's
// name while another program's rule matches the mark, too, whichever of the two
// was there first.
func TestPolicyRuleComesFirst(t *testing.T) {
	t.Parallel()
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		for name, before := range map[string]bool{"before ADD": true, "after ADD": false} {
			t.Run(name, func(t *testing.T) {
				w := newLinks(t)
				w.serve(t, w.pod, "tcp", 8080, direct)
				sidecar, err := w.pod.ProxyTransparently(sidecarRoot, ":15006")
				lab.Check(t, err)
				t.Cleanup(func() { _ = sidecar.Close() })
				if before {
					w.commands(t, maskedRule...)
				}
				netns := open(t, w.pod, backend)
				rs := decide(t, injected(tproxy(nil), nil), dualStack())
				lab.Check(t, netns.Apply(rs))
				if !before {
					w.commands(t, maskedRule...)
				}
				for _, f := range bothFamilies {
					w.expectClient(t, f, external)
				}
				expectHandedOn(t, w, sidecar)
				lab.Check(t, netns.Apply(rs)) // the same once more
				if rules := w.policyRules(t); strings.Count(rules, "lookup 133") != 2 {
					t.Errorf("policy rules after two ADDs:\n%s", rules)
				}
			})
		}
	})
}

// TestOlderPolicyRule has DEL and a repair remove the rule that older versions
// left at priority 133, and nothing of another program that looks like it.
func TestOlderPolicyRule(t *testing.T) {
	t.Parallel()
	rs := decide(t, injected(tproxy(nil), nil), dualStack())
	for name, act := range map[string]func(namespace) error{
		"DEL": func(n namespace) error { return n.Remove() },
		"repair": func(n namespace) error {
			lost, err := kernel.Replace(t.Context(), n.Namespace, rs)
			return errors.Join(lost, err)
		},
		"ADD": func(n namespace) error { return n.Apply(rs) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newLinks(t)
			w.commands(t,
				"ip rule add fwmark 1337 priority 133 protocol 133 lookup 133", "ip -6 rule add fwmark 1337 priority 133 protocol 133 lookup 133",
				"ip rule add fwmark 1337 priority 133 protocol 4 lookup 133", "ip rule add fwmark 1337 priority 132 protocol 133 lookup 134")
			netns := open(t, w.pod, config.NFTables)
			lab.Check(t, act(netns))
			rules := w.policyRules(t)
			ours := 2 // one for each family
			if name == "DEL" {
				ours = 0
			}
			for rule, want := range map[string]int{
				"1:\tfrom all fwmark 0x539 lookup 133 proto 133":   ours,
				"133:\tfrom all fwmark 0x539 lookup 133 proto 133": 0,
				"133:\tfrom all fwmark 0x539 lookup 133 proto 4":   1,
				"132:\tfrom all fwmark 0x539 lookup 134 proto 133": 1,
			} {
				if got := strings.Count("\n"+rules, "\n"+rule+"\n"); got != want {
					t.Errorf("%d rules %q, want %d:\n%s", got, rule, want, rules)
				}
			}
			if name == "DEL" {
				return
			}
			netns.expectSame(rs)
		})
	}
}

// commands runs programs in the pod's namespace.
func (w world) commands(t *testing.T, lines ...string) {
	t.Helper()
	for _, line := range lines {
		words := strings.Fields(line)
		run(words[0], words[1:]...)(t, w.pod)
	}
}

func (w world) policyRules(t *testing.T) (rules string) {
	t.Helper()
	lab.Check(t, w.pod.Do(func() error {
		for _, family := range []string{"-4", "-6"} {
			out, err := exec.CommandContext(t.Context(), "ip", family, "-N", "rule", "show").Output()
			if err != nil {
				return err
			}
			rules += string(out)
		}
		return nil
	}))
	return rules
}
