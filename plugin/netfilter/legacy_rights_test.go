// SPDX-License-Identifier: Apache-2.0

package netfilter_test

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/lab/sample"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/iptables"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
	"github.com/capture-cni/capture-cni/plugin/xtables"
)

// TestLegacyRulesWithoutRawSockets finds rules of iptables-legacy with the guard's
// capabilities, which do not include CAP_NET_RAW. istio-cni creates legacy tables in
// every pod where iptables-legacy is installed.
func TestLegacyRulesWithoutRawSockets(t *testing.T) {
	host := lab.StartHost(t)
	for _, program := range []string{"iptables-legacy", "ip6tables-legacy"} {
		lab.RequireProgram(t, program)
		host.Within(t, func() error {
			out, err := exec.CommandContext(t.Context(), program, "--wait", "--table", "nat", "--new-chain", "ISTIO_OUTPUT").CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%s: %w: %s", program, err, out)
			}
			return err
		})
	}
	var state netfilter.State
	host.Within(t, func() error {
		return withoutRawSockets(func() (err error) {
			state, err = netfilter.Inspect(t.Context())
			return err
		})
	})
	if state.Foreign == "" {
		t.Errorf("another plugin's legacy rules are not found: %+v", state)
	}
}

// withoutRawSockets calls f without CAP_NET_RAW. The caller's thread is locked.
func withoutRawSockets(f func() error) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var before [2]unix.CapUserData
	if err := unix.Capget(&header, &before[0]); err != nil {
		return fmt.Errorf("reading the thread's capabilities: %w", err)
	}
	without := before
	without[0].Effective &^= 1 << unix.CAP_NET_RAW
	if err := unix.Capset(&header, &without[0]); err != nil {
		return fmt.Errorf("dropping CAP_NET_RAW: %w", err)
	}
	return errors.Join(f(), unix.Capset(&header, &before[0]))
}

// TestInspectCreatesNoTable inspects rules of iptables-legacy that lack the table nat, as
// those of an ADD that was killed before it committed this table.
func TestInspectCreatesNoTable(t *testing.T) {
	t.Parallel()
	lab.RequireProgram(t, "iptables-legacy-restore")
	host := lab.StartHost(t)
	host.Pipe(t, "*mangle\n:"+iptables.MarkerChain+" - [0:0]\nCOMMIT\n", "iptables-legacy-restore", "--wait", "--noflush")
	if got, want := sample.Inspect(t, host), (netfilter.State{Backend: config.IPTablesLegacy, Stamp: "without a stamp"}); got != want {
		t.Errorf("it holds %+v, want %+v", got, want)
	}
	host.Within(t, func() error {
		if got, want := xtables.Names(), []xtables.Table{{Family: capture.IPv4, Name: "mangle"}}; !slices.Equal(got, want) {
			t.Errorf("it has the tables %v, want %v", got, want)
		}
		return nil
	})
}
