// SPDX-License-Identifier: Apache-2.0

package netfilter_test

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/lab/sample"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/dump"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
	"github.com/capture-cni/capture-cni/plugin/nftables"
)

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
			host := lab.StartHost(t)
			if test.loaded != "" {
				host.Load(t, test.loaded)
			}
			if got := sample.Inspect(t, host); got != (netfilter.State{Foreign: test.foreign}) {
				t.Errorf("got %+v, want foreign %q", got, test.foreign)
			}
			sample.Apply(t, host, sample.Rules())
			if got := sample.Inspect(t, host); got != (netfilter.State{Backend: config.NFTables, Stamp: sample.Rules().Stamp(), Foreign: test.foreign}) {
				t.Errorf("with ours: got %+v", got)
			}
		})
	}
}

// TestRefusedByTheKernel expects nothing of a large transaction to remain whose
// last message the kernel refuses.
func TestRefusedByTheKernel(t *testing.T) {
	t.Parallel()
	host := lab.StartHost(t)
	overlapping := sample.Rules(func(in *capture.Intent) {
		in.ExcludeOutboundRanges = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("10.1.0.0/16")}
	})
	for name, refused := range map[string]capture.Ruleset{"overlapping ranges": overlapping, "dangling jump": sample.Dangling()} {
		err := host.Do(func() error { return nftables.Backend{}.Apply(t.Context(), refused) })
		if err == nil || !strings.Contains(err.Error(), "committing table inet capture-cni") {
			t.Errorf("%s: got error %v", name, err)
		}
		if got := sample.Inspect(t, host); got != (netfilter.State{}) {
			t.Errorf("%s: left %+v", name, got)
		}
		if left := dump.Diff(dump.Dump{}, sample.Dump(t, host)); len(left) > 0 {
			t.Errorf("%s: left %q", name, left)
		}
	}
}

// TestOthersAreLeftAlone expects another program's table, with chains and sets of
// our names, to be neither read nor removed.
func TestOthersAreLeftAlone(t *testing.T) {
	t.Parallel()
	host := lab.StartHost(t)
	host.Load(t, `
		table ip capture-cni { chain nat_OUTPUT { counter accept; }; }
		table inet other {
			set owner_groups { type gid; elements = { 7 }; }
			chain nat_OUTPUT { type nat hook output priority -100; meta skgid @owner_groups accept; }
		}
	`)
	rs := sample.Rules(func(in *capture.Intent) { in.OwnerGroups = []uint32{1, 2} })
	sample.Apply(t, host, rs)
	want, err := netfilter.Reference(t.Context(), nftables.Backend{}, rs)
	if err != nil {
		t.Fatal(err)
	}
	if differences := dump.Diff(want, sample.Dump(t, host)); len(differences) > 0 {
		t.Errorf("differences: %q", differences)
	}
	host.Within(t, func() error { return netfilter.Remove(t.Context()) })
	var listed []byte
	host.Within(t, func() (err error) {
		listed, err = exec.CommandContext(t.Context(), "nft", "list", "tables").Output()
		return err
	})
	if string(listed) != "table ip capture-cni\ntable inet other\n" {
		t.Errorf("left: %s", listed)
	}
}

// TestReferenceStaysOutside expects no trace of a Reference in the caller's namespace.
func TestReferenceStaysOutside(t *testing.T) {
	t.Parallel()
	host := lab.StartHost(t)
	host.Within(t, func() error {
		_, err := netfilter.Reference(t.Context(), nftables.Backend{}, sample.Rules())
		return err
	})
	if left := dump.Diff(dump.Dump{}, sample.Dump(t, host)); len(left) > 0 {
		t.Errorf("the namespace holds %q", left)
	}
}
