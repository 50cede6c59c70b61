// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// TestKilledDuringUpdates kills the guard before one of its requests to the kernel, of any
// thread, each time at another update. Connections begin all the time, and the next guard leaves
// what an ADD leaves.
func TestKilledDuringUpdates(t *testing.T) {
	t.Parallel()
	n := newNode()
	p := n.run(t, "web")
	n.dualStack(t, p, "TPROXY")
	p.addBy(t, n, config.NFTables, excludes(9000))
	meeting := meets(t, p.proxied(t, "TPROXY"))
	dir := t.TempDir()
	n.serveIn(t, dir)
	socket := serveCRI(t, dir, newCRIStub(p))
	start := func(port int, by ...string) *builtGuard {
		return startBy(t, by, nil, "--run-dir", dir, "--cri-socket", socket, "--update", "rules", "--round", "1s", "--netconf", excluding(port))
	}
	var updated, kept int
	for nth, stamp := 30, p.rules(t).Stamp; nth < 66 || updated == 0 && nth < 150; nth += 6 {
		cut := fmt.Sprintf("inject=sendto,sendmsg:signal=SIGKILL:when=%d", nth)
		_ = start(9000+nth, "strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=sendto,sendmsg", "-e", cut).Wait() // it was killed
		switch now := p.rules(t).Stamp; {
		case !capture.IsStamp(now):
			t.Fatalf("killed before request %d, it left the pod with rules %q", nth, now)
		case now == stamp:
			kept++
		default:
			stamp = now
			updated++
		}
	}
	meeting.wait(t)
	start(9090).waitForCaptured(t, 1)
	meeting.wait(t)
	if kept == 0 || updated == 0 {
		t.Errorf("the guard was killed %d times before an update and %d times after one, want both", kept, updated)
	}
}
