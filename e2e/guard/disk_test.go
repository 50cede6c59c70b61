// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/guard"
	"github.com/capture-cni/capture-cni/install/received"
	"github.com/capture-cni/capture-cni/install/terms"
)

// TestFullDisk examines pods while the guard's disk is full, and remembers them: rules
// that claim to be of another version are drifted. The next guard knows it, too, once
// there was space.
func TestFullDisk(t *testing.T) {
	n := newNode()
	conn := n.listen(t)
	p := n.run(t, "web")
	directory := t.TempDir()
	lab.Check(t, unix.Mount("none", directory, "tmpfs", 0, "size=64k"))
	t.Cleanup(func() { _ = unix.Unmount(directory, unix.MNT_DETACH) })
	n.baselines = filepath.Join(directory, "guard")
	lab.Check(t, os.Mkdir(n.baselines, 0o700))
	filler := filepath.Join(directory, "filler")
	if err := os.WriteFile(filler, make([]byte, 128<<10), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("filling the disk: %v", err)
	}
	p.capture(t, nil)
	keeper, registry := n.keeper(t, guard.InPlace)
	keeper.Round(t.Context())
	expect(t, registry, map[terms.State]float64{terms.Captured: 1})
	p.forgeOlder(t)
	keeper.Round(t.Context())
	expectRepair(t, receive(t, conn)["web"], received.Drifted)
	keeper.Round(t.Context()) // adopts what the repair left
	lab.Check(t, os.Remove(filler))
	keeper.Round(t.Context())
	keeper, _ = n.keeper(t, guard.InPlace)
	p.forgeOlder(t)
	keeper.Round(t.Context())
	expectRepair(t, receive(t, conn)["web"], received.Drifted)
}

// forgeOlder replaces the rules by some that have the stamp of other annotations.
func (p *pod) forgeOlder(t *testing.T) {
	t.Helper()
	p.nft(t, "delete", "table", "inet", "capture-cni")
	p.capture(t, map[string]string{"traffic.sidecar.istio.io/excludeInboundPorts": "9090"})
}

// TestTornBaseline replaces a baseline that was cut off: the pod's state is adopted, as
// that of a pod that the guard has not seen before.
func TestTornBaseline(t *testing.T) {
	for name, content := range map[string]string{"empty": "", "cut off": `{"stamp":"capture-cni ru`} {
		t.Run(name, func(t *testing.T) {
			n := newNode()
			p := n.run(t, "web")
			p.capture(t, nil)
			n.baselines = t.TempDir()
			lab.Check(t, os.Chmod(n.baselines, 0o700))
			file := filepath.Join(n.baselines, p.sandbox.ID)
			lab.Check(t, os.WriteFile(file, []byte(content), 0o600))
			keeper, registry := n.keeper(t, guard.ReportOnly)
			keeper.Round(t.Context())
			expect(t, registry, map[terms.State]float64{terms.Captured: 1})
			if got, err := os.ReadFile(file); err != nil || len(got) <= len(content) {
				t.Errorf("it is not replaced: %q, %v", got, err)
			}
		})
	}
}
