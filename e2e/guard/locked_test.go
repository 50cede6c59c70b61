// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/install/telemetry"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

// TestLocked has another process hold the lock of two pods, as an ADD or a DEL does. The
// guard waits for neither, and repairs the third.
func TestLocked(t *testing.T) {
	t.Parallel()
	n := newNode()
	conn := n.listen(t)
	known := n.run(t, "a-known")
	g := n.newGuard(t, options{})
	g.finds(t, report.Captured)
	fresh, free := n.run(t, "b-fresh"), n.run(t, "c-free")
	known.nft(t, "delete", "table", "inet", "capture-cni")
	func() {
		examining.Lock() // so that only this guard uses up the time of the locks
		defer examining.Unlock()
		for _, p := range []*pod{known, fresh} {
			held, err := podnet.Open(t.Context(), p.sandbox.NetNS)
			lab.Check(t, err)
			released := time.AfterFunc(3*time.Second, func() { _ = held.Close() }) // for a guard that waits
			defer func() {
				if released.Stop() {
					_ = held.Close()
				}
			}()
		}
		g.Round(t.Context())
	}()
	g.expect(t, report.Captured, report.Captured, report.Unknown)
	for p, captured := range map[*pod]bool{known: false, fresh: false, free: true} {
		if got := p.rules(t).Backend != ""; got != captured {
			t.Errorf("%s: captured %v, want %v", p.sandbox.ID, got, captured)
		}
	}
	records := receive(t, conn)
	expectRepair(t, records["a-known"], telemetry.Uncaptured)
	expectRepair(t, records["c-free"], telemetry.Uncaptured)
}

// TestForeignLock has a process that can only read the lock's file lock a pod for reading:
// the guard repairs the pod, and says once that it works without a lock.
func TestForeignLock(t *testing.T) {
	t.Parallel()
	n := newNode()
	p := n.run(t, "web")
	var namespace unix.Stat_t
	lab.Check(t, unix.Stat(p.sandbox.NetNS, &namespace))
	reader, err := os.Open(podnet.LockDirectory + "/netns")
	lab.Check(t, err)
	defer reader.Close()
	lab.Check(t, unix.FcntlFlock(reader.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_RDLCK, Start: int64(namespace.Ino), Len: 1}))
	g := n.newGuard(t, options{})
	for range 3 {
		g.round(t)
	}
	g.expect(t, report.Captured)
	if log := n.log.String(); strings.Count(log, "continuing without a lock") != 1 {
		t.Errorf("it says:\n%s", log)
	}
}
