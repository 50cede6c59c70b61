// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/guard"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
)

// inNamespace is set where the test runs with mounts of its own.
const inNamespace = "TEST_WITH_OWN_MOUNTS"

// TestPodsOfOtherBackend has pods from before the node's backend became nftables, and a guard
// without iptables, as in its image. The record of an ADD tells whose rules they are: with it
// a pod is outdated, else unknown. Without rules it is repaired.
func TestPodsOfOtherBackend(t *testing.T) {
	t.Parallel()
	lab.RequireRoot(t)
	if os.Getenv(inNamespace) == "" {
		command := exec.CommandContext(t.Context(), "unshare", "--mount", os.Args[0], "-test.run=^TestPodsOfOtherBackend$", "-test.v")
		command.Env = append(os.Environ(), inNamespace+"=yes")
		if out, err := command.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	const programs = "/usr/sbin"
	for _, name := range []config.Backend{config.IPTablesNFT, config.IPTablesLegacy} {
		t.Run(string(name), func(t *testing.T) {
			n := newNode()
			_ = n.listen(t)
			backend, err := netfilter.Find(t.Context(), name)
			lab.Check(t, err)
			recorded := n.run(t, "recorded")
			recorded.captureBy(t, backend, nil)
			n.recordADD(t, recorded.record(t))
			lab.Check(t, unix.Mount("none", programs, "tmpfs", 0, ""))
			g := n.newGuard(t, options{})
			g.round(t)
			lab.Check(t, unix.Unmount(programs, 0))
			g.expect(t, report.Outdated)

			other := newNode()
			other.run(t, "unrecorded").captureBy(t, backend, nil)
			lab.Check(t, unix.Mount("none", programs, "tmpfs", 0, ""))
			unsure := other.newGuard(t, options{})
			unsure.round(t)
			lab.Check(t, unix.Unmount(programs, 0))
			unsure.expect(t, report.Unknown)

			recorded.serveAll(t)
			updater := n.newGuard(t, options{update: guard.UpdateRules})
			lab.Check(t, unix.Mount("none", programs, "tmpfs", 0, ""))
			updater.round(t)
			updater.round(t)
			lab.Check(t, unix.Unmount(programs, 0))
			updater.expect(t, map[config.Backend]report.Code{config.IPTablesNFT: report.Captured, config.IPTablesLegacy: report.Outdated}[name])

			recorded.host.Within(t, func() error { return netfilter.Remove(t.Context()) })
			for range 11 { // legacy tables are not of the generation by which the guard sees changes: it compares every tenth round
				g.round(t)
			}
			g.expect(t, report.Captured)
			if state := recorded.rules(t); state.Backend != config.NFTables {
				t.Errorf("repaired by %q", state.Backend)
			}
		})
	}
}
