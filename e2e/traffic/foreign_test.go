// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/coreos/go-iptables/iptables"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// byNFT is what a firewall and a mesh leave, written by nft: sets, a policy
// that drops, and chains in the very tables that iptables would use.
const byNFT = `table inet firewall {
	set peers {
		type ipv4_addr
		flags interval
		elements = { 10.0.0.0/8 }
	}
	chain input {
		type filter hook input priority 0; policy drop;
		ct state established,related accept
		iifname "lo" accept
		tcp dport 8080 accept
	}
}
table ip nat {
	chain PREROUTING {
		type nat hook prerouting priority -100
		tcp dport 1 redirect to :2
	}
	chain LINKERD {
		return
	}
}
table ip6 mangle {
	set ports {
		type inet_service
		elements = { 1, 2 }
	}
}`

// byIPTables is what a stateful firewall and a mesh leave, by iptables.
func byIPTables(variant string) func(t *testing.T, pod *lab.Host) {
	return func(t *testing.T, pod *lab.Host) {
		t.Helper()
		lab.Check(t, pod.Do(func() error {
			for protocol, name := range map[iptables.Protocol]string{iptables.ProtocolIPv4: "iptables-", iptables.ProtocolIPv6: "ip6tables-"} {
				icmp := map[iptables.Protocol]string{iptables.ProtocolIPv4: "icmp", iptables.ProtocolIPv6: "ipv6-icmp"}[protocol]
				command, err := iptables.New(iptables.IPFamily(protocol), iptables.Path(name+variant))
				if err != nil {
					return err
				}
				for _, rule := range []struct{ table, chain, rule string }{
					{"filter", "INPUT", "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"},
					{"filter", "INPUT", "-i lo -j ACCEPT"},
					{"filter", "INPUT", "-p " + icmp + " -j ACCEPT"},
					{"nat", "PROXY_INIT_REDIRECT", "-p tcp -j REDIRECT --to-ports 4143"},
					{"nat", "PREROUTING", "-p tcp -m tcp --dport 4191 -j PROXY_INIT_REDIRECT"},
					{"nat", "OUTPUT", "-m owner --uid-owner 2102 -m comment --comment ISTIO_OUTPUT -j RETURN"},
					{"mangle", "POSTROUTING", "-p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu"},
				} {
					_ = command.NewChain(rule.table, rule.chain) // most are built in
					if err := command.Append(rule.table, rule.chain, strings.Fields(rule.rule)...); err != nil {
						return err
					}
				}
				if err := command.ChangePolicy("filter", "INPUT", "DROP"); err != nil {
					return err
				}
			}
			return nil
		}))
	}
}

// others are the programs that can have left rules in a pod's namespace.
var others = map[string]func(*testing.T, *lab.Host){
	"nobody":          func(*testing.T, *lab.Host) {},
	"nft":             scripted(byNFT),
	"iptables-nft":    byIPTables("nft"),
	"iptables-legacy": byIPTables("legacy"),
}

// TestForeignRules survive all that we do, byte for byte.
func TestForeignRules(t *testing.T) {
	t.Parallel()
	all := injected(tproxy(nil), map[string]string{"ISTIO_META_DNS_CAPTURE": "true", "INVALID_DROP": "true"})
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		for name, leave := range others {
			t.Run(name, func(t *testing.T) {
				pod := lab.StartHost(t)
				lab.Check(t, pod.AddAddresses("lo"))
				leave(t, pod)
				before := everything(t, pod)
				rs := decide(t, all, dualStack())
				netns := open(t, pod, backend)
				lab.Check(t, netns.Apply(rs))
				during := everything(t, pod)
				netns.expectSame(rs)
				expectUnchanged(t, pod, during)
				expectWithin(t, before, during)
				lab.Check(t, netns.Remove())
				expectUnchanged(t, pod, before)
			})
		}
	})
}

// expectUnchanged compares everything with what it was.
func expectUnchanged(t *testing.T, pod *lab.Host, before string) {
	t.Helper()
	if after := everything(t, pod); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}

// everything is all that a namespace holds of rules, policy routing and addresses of lo. Legacy
// tables without a rule are left out: the kernel has no way to take one away. So is
// the local route of ::6, which a worker of the kernel adds some time after the address.
func everything(t *testing.T, pod *lab.Host) string {
	t.Helper()
	var all strings.Builder
	lab.Check(t, pod.Do(func() error {
		for _, command := range [][]string{
			{"nft", "-s", "list", "ruleset"},
			{"ip", "-brief", "address", "show", "lo"},
			{"ip", "rule"},
			{"ip", "-6", "rule"},
			{"ip", "route", "show", "table", "all"},
			{"ip", "-6", "route", "show", "table", "all"},
			{"iptables-legacy-save"},
			{"ip6tables-legacy-save"},
		} {
			out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).Output()
			if err != nil {
				return err
			}
			text := string(out)
			if strings.HasSuffix(command[0], "-save") {
				text = withRules(text)
			}
			for line := range strings.Lines(text) {
				if !strings.HasPrefix(line, "local ::6 ") {
					all.WriteString(line)
				}
			}
		}
		return nil
	}))
	return all.String()
}

// withRules keeps the tables of a listing that hold more than built-in chains.
func withRules(saved string) string {
	var kept strings.Builder
	for table := range strings.SplitAfterSeq(saved, "COMMIT\n") {
		_, table, _ = strings.Cut(table, "*")
		if strings.Contains(table, "\n-A") || strings.Contains(table, " - [") || strings.Contains(table, " DROP [") {
			kept.WriteString("*" + table)
		}
	}
	return kept.String()
}

// expectWithin wants every line of one listing in the other, in its order, except lo's.
func expectWithin(t *testing.T, before, during string) {
	t.Helper()
	rest := strings.Split(during, "\n")
	for line := range strings.SplitSeq(before, "\n") {
		if strings.HasPrefix(line, "lo ") {
			continue
		}
		i := 0
		for i < len(rest) && rest[i] != line {
			i++
		}
		if i == len(rest) {
			t.Errorf("%q is missing, or elsewhere, in:\n%s", line, during)
			return
		}
		rest = rest[i+1:]
	}
}

// TestStatefulFirewall has a pod drop whatever is no answer: answers to the
// proxy's queries must be known for answers in conntrack's zones.
func TestStatefulFirewall(t *testing.T) {
	t.Parallel()
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		w := newProbeWorld(t, []int{53, 80, 8080}, istioMesh)
		for _, variant := range []string{"nft", "legacy"} {
			byIPTables(variant)(t, w.pod)
		}
		settings := dualStack()
		settings.Mesh.OutboundOwnerGroupsExclude = []uint32{7}
		lab.Check(t, open(t, w.pod, backend).Apply(decide(t, injected(nil, captureDNS), settings)))
		w.probeAll(t, concat(queries(app, external, resolver), queries(proxy, external, direct),
			queries(lab.Owner{UID: 7, GID: 7}, external, direct), queries(app, localhost, resolver),
			[]probe{out(app, external, 80, outbound), in(podIP, 8080, dropped)})...) // dropped by the firewall
	})
}
