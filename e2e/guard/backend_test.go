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
	"github.com/capture-cni/capture-cni/install/history"
	"github.com/capture-cni/capture-cni/install/terms"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// inNamespace is set where the test runs with mounts of its own.
const inNamespace = "TEST_WITH_OWN_MOUNTS"

// TestPodsOfOtherBackend has pods from before the node's backend became nftables, and a guard
// without iptables, as in its image. The record of an ADD tells whose rules they are: with it
// a pod is outdated, else unknown. Without rules it is repaired.
func TestPodsOfOtherBackend(t *testing.T) {
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
			lab.Check(t, os.Mkdir(history.Directory(n.socket), 0o700))
			backend, err := netfilter.Find(t.Context(), name)
			lab.Check(t, err)
			recorded := n.run(t, "recorded")
			recorded.captureBy(t, backend, nil)
			stamp := recorded.rules(t).Stamp
			lab.Check(t, recordADD(n.socket, record.Record{
				Pod: record.PodRef{Namespace: "shop", Name: "recorded", UID: recorded.sandbox.UID}, Sandbox: recorded.sandbox.ID,
				Verdict: record.Captured, Stamp: stamp, Backend: string(name),
			}))
			lab.Check(t, unix.Mount("none", programs, "tmpfs", 0, ""))
			keeper, registry := n.keeper(t, guard.InPlace)
			keeper.Round(t.Context())
			lab.Check(t, unix.Unmount(programs, 0))
			expect(t, registry, map[terms.State]float64{terms.Outdated: 1})

			other := newNode()
			other.run(t, "unrecorded").captureBy(t, backend, nil)
			lab.Check(t, unix.Mount("none", programs, "tmpfs", 0, ""))
			unsure, states := other.keeper(t, guard.InPlace)
			unsure.Round(t.Context())
			lab.Check(t, unix.Unmount(programs, 0))
			expect(t, states, map[terms.State]float64{terms.Unknown: 1})

			lab.Check(t, recorded.host.Do(func() error { return netfilter.Remove(t.Context()) }))
			for range 11 { // legacy tables are not of the generation by which the guard sees changes: it compares every tenth round
				keeper.Round(t.Context())
			}
			expect(t, registry, map[terms.State]float64{terms.Captured: 1})
			if state := recorded.rules(t); state.Backend != config.NFTables {
				t.Errorf("repaired by %q", state.Backend)
			}
		})
	}
}
