// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/dump"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
	"github.com/capture-cni/capture-cni/plugin/nftables"
)

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
			within(t, host, func() error { return replaceRules(t.Context(), next) })
			if got, want := inspect(t, host), (netfilter.State{Backend: config.NFTables, Stamp: next.Stamp()}); got != want {
				t.Errorf("it holds %+v, want %+v", got, want)
			}
			want, err := netfilter.Reference(t.Context(), nftables.Backend{}, next)
			if err != nil {
				t.Fatal(err)
			}
			if differences := dump.Diff(want, dumpOf(t, host)); len(differences) > 0 {
				t.Errorf("differences: %q", differences)
			}
			load(t, host, "delete table inet capture-cni; delete table inet other")
			if left := inspect(t, host); left != (netfilter.State{}) {
				t.Errorf("next to it remains %+v", left)
			}
		})
	}
}
