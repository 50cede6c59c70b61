// SPDX-License-Identifier: Apache-2.0

package netfilter_test

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/dump"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
	"github.com/capture-cni/capture-cni/plugin/nftables"
)

func newHost(t *testing.T) *lab.Host {
	t.Helper()
	lab.RequireRoot(t)
	host, err := lab.NewHost()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = host.Close() })
	return host
}

func within(t *testing.T, host *lab.Host, f func() error) {
	t.Helper()
	if err := host.Do(f); err != nil {
		t.Fatal(err)
	}
}

func inspect(t *testing.T, host *lab.Host) (state netfilter.State) {
	t.Helper()
	within(t, host, func() (err error) {
		state, err = netfilter.Inspect(t.Context())
		return err
	})
	return state
}

func dumpOf(t *testing.T, host *lab.Host) (table dump.Dump) {
	t.Helper()
	within(t, host, func() (err error) {
		table, err = nftables.Backend{}.Dump(t.Context())
		return err
	})
	return table
}

// load runs nft: another program should write another plugin's ruleset.
func load(t *testing.T, host *lab.Host, text string) {
	t.Helper()
	lab.RequireProgram(t, "nft")
	within(t, host, func() error {
		command := exec.CommandContext(t.Context(), "nft", "-f", "-")
		command.Stdin = strings.NewReader(text)
		out, err := command.CombinedOutput()
		if err != nil {
			t.Errorf("%s", out)
		}
		return err
	})
}

func rules(changes ...func(*capture.Intent)) capture.Ruleset {
	intent := capture.Intent{
		IPv6: capture.Captured, OutboundPort: 15001, InboundPort: 15006, TunnelPort: 15008, ProxyUID: 1337, ProxyGID: 1337,
		LoopbackCIDR: netip.MustParsePrefix("127.0.0.1/32"),
		InboundPorts: capture.Everything[uint16](), OutboundRanges: capture.Everything[netip.Prefix](),
	}
	for _, change := range changes {
		change(&intent)
	}
	return capture.Rules(intent)
}

// dangling returns rules with a jump to a chain that does not exist.
func dangling() capture.Ruleset {
	rs := rules()
	last := &rs.Chains[len(rs.Chains)-1]
	last.Rules = append(last.Rules, capture.Rule{Do: capture.Action{Verdict: capture.Jump, Chain: "NOWHERE"}, Why: "a jump to nowhere"})
	return rs
}
