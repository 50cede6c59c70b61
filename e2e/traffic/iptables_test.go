// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// iptablesBackends are both variants of iptables.
var iptablesBackends = backends[1:]

// TestOtherBackend refuses a namespace that another backend of ours captured,
// and takes its rules out for any.
func TestOtherBackend(t *testing.T) {
	t.Parallel()
	lab.RequireRoot(t)
	rs := decide(t, injected(nil, nil), dualStack())
	for _, first := range backends {
		for _, second := range backends {
			if first == second {
				continue
			}
			t.Run(string(first+", then "+second), func(t *testing.T) {
				pod := lab.StartHost(t)
				lab.Check(t, pod.AddAddresses("lo"))
				before := everything(t, pod)
				netns := open(t, pod, first)
				lab.Check(t, netns.Apply(rs))
				during := everything(t, pod)
				again := namespace{netns.Namespace, t, pod, second}
				expectRefusal(t, again.Apply(rs), "by backend "+string(first)+" instead of "+string(second))
				expectUnchanged(t, pod, during)
				lab.Check(t, again.Remove())
				expectUnchanged(t, pod, before)
			})
		}
	}
}

// TestAlias applies by the name that the host gives to one of the variants,
// and finds its own rules again under that variant's name.
func TestAlias(t *testing.T) {
	t.Parallel()
	lab.RequireRoot(t)
	pod := lab.StartHost(t)
	rs := decide(t, injected(nil, nil), dualStack())
	alias := open(t, pod, config.IPTables)
	lab.Check(t, alias.Apply(rs))
	lab.Check(t, alias.Apply(rs))
	var found []config.Backend
	for _, backend := range backends {
		netns := namespace{alias.Namespace, t, pod, backend}
		if netns.Apply(rs) == nil {
			found = append(found, backend)
		}
	}
	if len(found) != 1 || found[0] == config.NFTables {
		t.Errorf("the alias is %q", found)
	}
	alias.expectSame(rs)
}

// TestNoIPTables has the host lack what the operator asked for.
func TestNoIPTables(t *testing.T) {
	t.Parallel()
	lab.RequireRoot(t)
	pod := lab.StartHost(t)
	before := everything(t, pod)
	err := open(t, pod, "iptables-other").Apply(decide(t, injected(nil, nil), dualStack()))
	expectRefusal(t, err, `backend "iptables-other": this host does not have it`)
	expectUnchanged(t, pod, before)
}

// TestUserNamespaceByIPTables refuses a pod for which iptables can't match
// owners, before anything is done to it.
func TestUserNamespaceByIPTables(t *testing.T) {
	t.Parallel()
	lab.RequireRoot(t)
	for _, backend := range append(iptablesBackends, config.IPTables) {
		pod := newUserHost(t)
		before := everything(t, pod)
		expectRefusal(t, open(t, pod, backend).Apply(decide(t, injected(nil, nil), dualStack())), "hostUsers: false")
		expectUnchanged(t, pod, before)
	}
}

// TestCheckByIPTables changes what Apply made, in every way that changes what
// packets meet, and wants each change named.
func TestCheckByIPTables(t *testing.T) {
	t.Parallel()
	lab.RequireRoot(t)
	rs := decide(t, injected(tproxy(nil), captureDNS), dualStack())
	for _, backend := range iptablesBackends {
		four, six := string(backend), strings.Replace(string(backend), "ip", "ip6", 1)
		for _, test := range []struct{ name, command, want string }{
			{"removed rule", four + " -t nat -D ISTIO_REDIRECT 1", `missing: rule "to the proxy's outbound port" of chain ISTIO_REDIRECT of ipv4 table nat`},
			{"removed jump", six + " -t mangle -D PREROUTING 1", `missing: chain PREROUTING of ipv6 table mangle`},
			{"removed one of two jumps", four + " -t nat -D OUTPUT 1", `missing: rule "outbound TCP" of chain OUTPUT of ipv4 table nat`},
			{"another comment", four + " -t nat -R ISTIO_REDIRECT 1 -p tcp -m comment --comment other -j REDIRECT --to-ports 15001", ""},
			{"added rule", six + " -t nat -I ISTIO_OUTPUT -j RETURN", "unexpected: a rule without comment of chain ISTIO_OUTPUT of ipv6 table nat"},
			{"added rule with the comment of a note", six + " -t nat -I ISTIO_OUTPUT -m comment --comment made:table -j RETURN", `unexpected: rule "made:table" of chain ISTIO_OUTPUT of ipv6 table nat`},
			{"added jump", four + " -t nat -A INPUT -j CAPTURE_CNI", "unexpected: chain INPUT of ipv4 table nat"},
			{"changed rule", four + " -t mangle -R ISTIO_DELIVER 3 -j ACCEPT", "unexpected: a rule without comment of chain ISTIO_DELIVER"},
			{"added chain", four + " -t nat -N ISTIO_OTHER", "unexpected: chain ISTIO_OTHER of ipv4 table nat"},
			{"somebody else's rule", four + " -t nat -A OUTPUT -p udp -j RETURN", ""},
			{"no rules", six + " -t raw -F", `missing: rule "the application's query" of chain ISTIO_OUTPUT_DNS of ipv6 table raw`},
			{"no policy rule", "ip rule delete priority 1", "missing: IPv4 policy rule 1: mark 1337, table 133"},
			{"no route", "ip -6 route flush table 133", "missing: IPv6 route local default dev lo, table 133"},
			{"another route", "ip route add blackhole 192.0.2.0/24 table 133", "routing table 133 holds another route"},
		} {
			t.Run(string(backend)+"/"+test.name, func(t *testing.T) {
				t.Parallel()
				pod := lab.StartHost(t)
				netns := open(t, pod, backend)
				lab.Check(t, netns.Apply(rs))
				words := strings.Fields(test.command)
				run(words[0], words[1:]...)(t, pod)
				differences, err := netns.Check(rs)
				lab.Check(t, err)
				got := strings.Join(differences, "\n")
				if test.want == "" && got != "" || !strings.Contains(got, test.want) {
					t.Errorf("got %q, want %q", got, test.want)
				}
			})
		}
	}
}
