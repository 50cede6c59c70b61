// SPDX-License-Identifier: Apache-2.0

package netfilter_test

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
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

func dump(t *testing.T, host *lab.Host) (table netfilter.Dump) {
	t.Helper()
	within(t, host, func() (err error) {
		table, err = netfilter.NFTables{}.Dump(t.Context())
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

func TestInspect(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, loaded, foreign string }{
		{"nothing", "", ""},
		{"a firewall", "table inet filter { chain input { type filter hook input priority 0; }; }", ""},
		{"istio-cni's iptables", "table ip nat { chain ISTIO_OUTPUT { }; }", "nat/ISTIO_OUTPUT"},
		{"istio-cni's ip6tables", "table ip6 nat { chain ISTIO_INBOUND { }; }", "nat/ISTIO_INBOUND"},
		{"istio-cni's nftables", "table inet istio-proxy-nat { chain output { }; }", "istio-proxy-nat/output"},
		{"a chain with a similar name", "table ip nat { chain ISTIO_OUTPUT_OLD { }; }", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			host := newHost(t)
			if test.loaded != "" {
				load(t, host, test.loaded)
			}
			if got := inspect(t, host); got != (netfilter.State{Foreign: test.foreign}) {
				t.Errorf("got %+v, want foreign %q", got, test.foreign)
			}
			within(t, host, func() error { return netfilter.NFTables{}.Apply(t.Context(), rules()) })
			if got := inspect(t, host); got != (netfilter.State{Backend: config.NFTables, Stamp: rules().Stamp(), Foreign: test.foreign}) {
				t.Errorf("with ours: got %+v", got)
			}
		})
	}
}

// TestRefusedByTheKernel expects nothing of a large transaction to remain whose
// last message the kernel refuses.
func TestRefusedByTheKernel(t *testing.T) {
	t.Parallel()
	host := newHost(t)
	overlapping := rules(func(in *capture.Intent) {
		in.ExcludeOutboundRanges = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("10.1.0.0/16")}
	})
	for name, refused := range map[string]capture.Ruleset{"overlapping ranges": overlapping, "dangling jump": dangling()} {
		err := host.Do(func() error { return netfilter.NFTables{}.Apply(t.Context(), refused) })
		if err == nil || !strings.Contains(err.Error(), "committing table inet capture-cni") {
			t.Errorf("%s: got error %v", name, err)
		}
		if got := inspect(t, host); got != (netfilter.State{}) {
			t.Errorf("%s: left %+v", name, got)
		}
		if left := netfilter.Diff(netfilter.Dump{}, dump(t, host)); len(left) > 0 {
			t.Errorf("%s: left %q", name, left)
		}
	}
}

// TestOthersAreLeftAlone expects another program's table, with chains and sets of
// our names, to be neither read nor removed.
func TestOthersAreLeftAlone(t *testing.T) {
	t.Parallel()
	host := newHost(t)
	load(t, host, `
		table ip capture-cni { chain nat_OUTPUT { counter accept; }; }
		table inet other {
			set owner_groups { type gid; elements = { 7 }; }
			chain nat_OUTPUT { type nat hook output priority -100; meta skgid @owner_groups accept; }
		}
	`)
	rs := rules(func(in *capture.Intent) { in.OwnerGroups = []uint32{1, 2} })
	within(t, host, func() error { return netfilter.NFTables{}.Apply(t.Context(), rs) })
	want, err := netfilter.Reference(t.Context(), netfilter.NFTables{}, rs)
	if err != nil {
		t.Fatal(err)
	}
	if differences := netfilter.Diff(want, dump(t, host)); len(differences) > 0 {
		t.Errorf("differences: %q", differences)
	}
	within(t, host, func() error { return netfilter.Remove(t.Context()) })
	var listed []byte
	within(t, host, func() (err error) {
		listed, err = exec.CommandContext(t.Context(), "nft", "list", "tables").Output()
		return err
	})
	if string(listed) != "table ip capture-cni\ntable inet other\n" {
		t.Errorf("left: %s", listed)
	}
}

// TestReplace replaces a Ruleset that any backend applied: nothing of it remains.
func TestReplace(t *testing.T) {
	for _, backend := range []config.Backend{config.NFTables, config.IPTablesNFT, config.IPTablesLegacy} {
		t.Run(string(backend), func(t *testing.T) {
			t.Parallel()
			host := newHost(t)
			load(t, host, "table inet other {\n chain input {\n type filter hook input priority 0\n }\n}")
			within(t, host, func() error {
				before, err := netfilter.Find(t.Context(), backend)
				if err != nil {
					return err
				}
				return before.Apply(t.Context(), rules())
			})
			next := rules(func(i *capture.Intent) { i.DropInvalid = true })
			within(t, host, func() error { return netfilter.NFTables{}.Replace(t.Context(), next) })
			if got, want := inspect(t, host), (netfilter.State{Backend: config.NFTables, Stamp: next.Stamp()}); got != want {
				t.Errorf("it holds %+v, want %+v", got, want)
			}
			want, err := netfilter.Reference(t.Context(), netfilter.NFTables{}, next)
			if err != nil {
				t.Fatal(err)
			}
			if differences := netfilter.Diff(want, dump(t, host)); len(differences) > 0 {
				t.Errorf("differences: %q", differences)
			}
			load(t, host, "delete table inet capture-cni; delete table inet other")
			if left := inspect(t, host); left != (netfilter.State{}) {
				t.Errorf("next to it remains %+v", left)
			}
		})
	}
}

// TestEnableConntrack expects that the table of an interrupted repair is not
// taken for capture rules, and that the next repair and a DEL remove it.
func TestEnableConntrack(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func() error{
		"repaired": func() error { return netfilter.NFTables{}.Replace(t.Context(), rules()) },
		"deleted":  func() error { return netfilter.Remove(t.Context()) },
		"undone":   func() error { return netfilter.DisableConntrack(t.Context()) },
	} {
		host := newHost(t)
		within(t, host, func() error { return netfilter.DisableConntrack(t.Context()) }) // there is nothing to undo yet
		for range 2 {
			within(t, host, func() error { return netfilter.EnableConntrack(t.Context()) })
			if got := inspect(t, host); got != (netfilter.State{}) {
				t.Errorf("it is taken for %+v", got)
			}
			if left := netfilter.Diff(netfilter.Dump{}, dump(t, host)); len(left) > 0 {
				t.Errorf("it is taken for %q", left)
			}
		}
		within(t, host, end)
		var listed []byte
		within(t, host, func() (err error) {
			listed, err = exec.CommandContext(t.Context(), "nft", "list", "tables").Output()
			return err
		})
		want := map[string]string{"repaired": "table inet capture-cni\n"}[name]
		if string(listed) != want {
			t.Errorf("%s: left %q", name, listed)
		}
	}
}

// TestReferenceStaysOutside expects no trace of a Reference in the caller's namespace.
func TestReferenceStaysOutside(t *testing.T) {
	t.Parallel()
	host := newHost(t)
	within(t, host, func() error {
		_, err := netfilter.Reference(t.Context(), netfilter.NFTables{}, rules())
		return err
	})
	if left := netfilter.Diff(netfilter.Dump{}, dump(t, host)); len(left) > 0 {
		t.Errorf("the namespace holds %q", left)
	}
}
