// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/lab/sample"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/dump"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
	"github.com/capture-cni/capture-cni/plugin/nftables"
)

// TestReplace replaces a Ruleset that any backend applied: nothing of it remains.
func TestReplace(t *testing.T) {
	for _, backend := range []config.Backend{config.NFTables, config.IPTablesNFT, config.IPTablesLegacy} {
		t.Run(string(backend), func(t *testing.T) {
			t.Parallel()
			host := lab.StartHost(t)
			host.Load(t, "table inet other {\n chain input {\n type filter hook input priority 0\n }\n}")
			host.Within(t, func() error {
				before, err := netfilter.Find(t.Context(), backend)
				if err != nil {
					return err
				}
				return before.Apply(t.Context(), sample.Rules())
			})
			next := sample.Rules(func(i *capture.Intent) { i.DropInvalid = true })
			stop := inspectAlways(t, host)
			host.Within(t, func() error { return replaceRules(t.Context(), next) })
			stop()
			if got, want := sample.Inspect(t, host), (netfilter.State{Backend: config.NFTables, Stamp: next.Stamp()}); got != want {
				t.Errorf("it holds %+v, want %+v", got, want)
			}
			want, err := netfilter.Reference(t.Context(), nftables.Backend{}, next)
			if err != nil {
				t.Fatal(err)
			}
			if differences := dump.Diff(want, sample.Dump(t, host)); len(differences) > 0 {
				t.Errorf("differences: %q", differences)
			}
			host.Load(t, "delete table inet capture-cni; delete table inet other")
			if left := sample.Inspect(t, host); left != (netfilter.State{}) {
				t.Errorf("next to it remains %+v", left)
			}
		})
	}
}

// inspectAlways inspects a host again and again, and wants it to hold rules of ours each time, until
// the function that it returns is called. It returns after the first inspection.
func inspectAlways(t *testing.T, host *lab.Host) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	began, ended := make(chan struct{}), make(chan struct{})
	begin := sync.OnceFunc(func() { close(began) })
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			err := host.Do(func() error {
				state, err := netfilter.Inspect(t.Context())
				if err == nil && state.Backend == "" {
					err = errors.New("it holds no rules while they are replaced")
				}
				return err
			})
			if err != nil && !errors.Is(err, nfnetlink.ErrChanging) && ctx.Err() == nil {
				t.Error(err)
			}
			begin()
		}
	}()
	<-began
	return func() {
		cancel()
		<-ended
	}
}
