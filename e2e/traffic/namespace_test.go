// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

// loopback is what ip says of lo.
func loopback(t *testing.T, host *lab.Host) string {
	t.Helper()
	var out []byte
	lab.Check(t, host.Do(func() (err error) {
		out, err = exec.CommandContext(t.Context(), "ip", "-brief", "address", "show", "lo").CombinedOutput()
		return err
	}))
	return string(out)
}

// TestFailureLeavesNothing applies rules of which the kernel refuses the last,
// after everything else was prepared, next to other programs' rules.
func TestFailureLeavesNothing(t *testing.T) {
	t.Parallel()
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		for name, leave := range others {
			t.Run(name, func(t *testing.T) {
				pod := lab.StartHost(t)
				leave(t, pod)
				rs := decide(t, injected(tproxy(nil), captureDNS), dualStack())
				last := &rs.Chains[len(rs.Chains)-1]
				last.Rules = append(last.Rules, capture.Rule{
					Match: capture.Match{Dst: capture.List[netip.Prefix]{Values: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")}}}, // all of IPv6 is fine
					Do:    capture.Action{Verdict: capture.Jump, Chain: "NOWHERE"},
				})
				before := everything(t, pod)
				if err := open(t, pod, backend).Apply(rs); err == nil {
					t.Fatal("rules that jump nowhere were applied")
				}
				expectUnchanged(t, pod, before)
			})
		}
	})
}

func TestApplyTwice(t *testing.T) {
	t.Parallel()
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		lab.RequireRoot(t)
		pod := lab.StartHost(t)
		rs := decide(t, injected(nil, nil), dualStack())
		netns := open(t, pod, backend)
		lab.Check(t, netns.Apply(rs))
		once := list(t, pod, "ruleset")
		lab.Check(t, netns.Apply(rs))
		if twice := list(t, pod, "ruleset"); twice != once {
			t.Errorf("once:\n%s\ntwice:\n%s", once, twice)
		}

		weaker := decide(t, injected(spelled(map[string]string{"includeInboundPorts": ""}), nil), dualStack())
		expectRefusal(t, netns.Apply(weaker), "other rules of an earlier ADD ("+rs.Stamp())
		if after := list(t, pod, "ruleset"); after != once {
			t.Errorf("a refused ruleset changed the rules:\n%s", after)
		}

		lab.Check(t, netns.Remove())
		lab.Check(t, netns.Remove())
		if rest := list(t, pod, "ruleset"); rest != "" {
			t.Errorf("after Remove:\n%s", rest)
		}
		if strings.Contains(loopback(t, pod), "::6/128") {
			t.Error("::6 is still on lo after Remove")
		}
		lab.Check(t, netns.Apply(weaker))
	})
}

func expectRefusal(t *testing.T, err error, text string) {
	t.Helper()
	var refusal capture.Refusal
	if !errors.As(err, &refusal) || !strings.Contains(err.Error(), text) {
		t.Errorf("got error %v, want a refusal with %q", err, text)
	}
}

// TestTamperedRules expects tampered rules to differ although their stamp is right.
func TestTamperedRules(t *testing.T) {
	t.Parallel()
	const backend = config.NFTables
	lab.RequireRoot(t)
	pod := lab.StartHost(t)
	rs := decide(t, injected(nil, nil), dualStack())
	netns := open(t, pod, backend)
	lab.Check(t, netns.Apply(rs))
	pod.Load(t, "flush chain inet capture-cni nat_ISTIO_OUTPUT")
	expectRefusal(t, netns.Apply(rs), "changed since ADD")
	pod.Load(t, "flush chain inet capture-cni stamp")
	expectRefusal(t, netns.Apply(rs), "without a stamp")
	lab.Check(t, netns.Remove())
	lab.Check(t, netns.Apply(rs))
}

func TestGone(t *testing.T) {
	t.Parallel()
	if _, err := podnet.Open(t.Context(), "/var/run/netns/there-is-none"); !errors.Is(err, podnet.ErrGone) {
		t.Errorf("got %v", err)
	}
}

func TestNoAddress(t *testing.T) {
	t.Parallel()
	for _, addresses := range [][]netip.Addr{nil, {netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("fe80::1")}} {
		_, err := lab.Decide(injected(nil, nil), config.DefaultSettings(), addresses...)
		expectRefusal(t, err, "no usable address")
	}
}

// TestOtherCapture refuses a namespace that istio-cni or istio-init captured.
func TestOtherCapture(t *testing.T) {
	t.Parallel()
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		for _, leave := range []func(*testing.T, *lab.Host){
			scripted("table inet istio-proxy-nat {\n chain output { type nat hook output priority -100; }\n}"),
			scripted("table ip nat {\n chain ISTIO_OUTPUT { return; }\n}"),
			scripted("table ip6 nat {\n chain ISTIO_INBOUND { return; }\n}"),
			scripted("table ip mangle {\n chain ISTIO_INBOUND { return; }\n}"),
			run("iptables-nft", "-t", "nat", "-N", "ISTIO_OUTPUT"),
			run("iptables-legacy", "--wait", "-t", "nat", "-N", "ISTIO_OUTPUT"),
			run("ip6tables-legacy", "--wait", "-t", "mangle", "-N", "ISTIO_INBOUND"),
		} {
			pod := lab.StartHost(t)
			leave(t, pod)
			before := everything(t, pod)
			netns := open(t, pod, backend)
			expectRefusal(t, netns.Apply(decide(t, injected(nil, nil), dualStack())), "another plugin's capture rules")
			lab.Check(t, netns.Remove())
			expectUnchanged(t, pod, before)
		}
	})
}

// TestOtherLegacyCapture knows the chains of iptables' older variant, and
// creates none of its tables to find out.
func TestOtherLegacyCapture(t *testing.T) {
	t.Parallel()
	const backend = config.NFTables
	lab.RequireRoot(t)
	for command, tables := range map[string]string{
		"iptables-legacy": "/proc/thread-self/net/ip_tables_names", "ip6tables-legacy": "/proc/thread-self/net/ip6_tables_names",
	} {
		t.Run(command, func(t *testing.T) {
			pod := lab.StartHost(t)
			rs := decide(t, injected(nil, nil), dualStack())
			netns := open(t, pod, backend)
			lab.Check(t, netns.Apply(rs))
			lab.Check(t, netns.Remove())
			lab.Check(t, pod.Do(func() error {
				names, err := os.ReadFile(tables)
				if err == nil && len(names) > 0 {
					err = fmt.Errorf("Apply created legacy tables: %s", names)
				}
				if errors.Is(err, fs.ErrNotExist) {
					return nil
				}
				return err
			}))
			run(command, "-t", "nat", "-N", "SOMETHING")(t, pod)
			lab.Check(t, netns.Apply(rs))
			lab.Check(t, netns.Remove())
			run(command, "-t", "nat", "-N", "ISTIO_OUTPUT")(t, pod)
			expectRefusal(t, netns.Apply(rs), "nat/ISTIO_OUTPUT holds another plugin's capture rules")
		})
	}
}
