// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
)

// TestBoot empties /run and rewrites the primary's list before the agent starts.
// In the modes that do not edit that list, pods are captured meanwhile.
func TestBoot(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"owned", "dropin", "insert"} {
		n := newNode(t)
		n.PreparePods(t)
		a := n.StartReady(t, "--mode", mode)
		lab.Check(t, n.StartAndStop(t, "web"))
		lab.Check(t, a.Process.Kill())
		_ = a.Wait()
		lab.Check(t, os.RemoveAll(n.RunDir))
		n.Write(t, machine.PrimaryName, machine.Kindnet)
		if mode == "insert" {
			lab.Check(t, n.startUncaptured(t))
		} else {
			lab.Check(t, n.StartAndStop(t, "web"))
		}
		start := time.Now()
		n.Start(t, "--mode", mode).Ready(t)
		t.Logf("mode %s: ready again after %s", mode, time.Since(start).Round(time.Millisecond))
		lab.Check(t, n.StartAndStop(t, "web"))
	}
}

// TestUninstallUnderPods cleans a node on which a captured pod runs, without an
// API server: new pods start uncaptured, and the DEL of the old one succeeds.
func TestUninstallUnderPods(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"insert", "owned", "dropin"} {
		n := newNode(t)
		n.PreparePods(t)
		a := n.StartReady(t, "--mode", mode)
		old, err := n.StartPod(t, "web")
		lab.Check(t, err)
		a.Stop(t)
		lab.Check(t, n.API.Close())
		if out, err := n.Command("uninstall"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		lab.Check(t, n.StartAndStop(t, "plain"))
		if err := n.startUncaptured(t); err != nil {
			t.Errorf("mode %s: a pod after the uninstall: %v", mode, err)
		}
		lab.Check(t, old.Stop(t))
	}
}

// TestEarlierUpgrade upgrades from an earlier release and back, three times, while pods start and
// stop: none fails, and each meshed pod is captured by the rules of one of the two.
func TestEarlierUpgrade(t *testing.T) {
	t.Parallel()
	for _, version := range lab.EarlierVersions {
		t.Run(version, func(t *testing.T) { testUpgrade(t, version) })
	}
}

func testUpgrade(t *testing.T, version string) {
	t.Parallel()
	n := newNode(t)
	n.PreparePods(t)
	netConf := filepath.Join(t.TempDir(), "netconf.json")
	lab.Check(t, os.WriteFile(netConf, []byte(`{"logLevel": "debug", "lookupTimeout": "20s"}`), 0o600))
	releases := []string{lab.Part(t, version), n.Release}
	startRelease := func(i int) *machine.Agent {
		n.Release = releases[i%2]
		return n.Start(t, "--mode", "insert", "--netconf", netConf)
	}
	a := startRelease(0)
	a.Ready(t)
	old := n.learnEarlierRules(t)
	stop, ended := make(chan struct{}), make(chan struct{})
	var started atomic.Int64
	for _, pod := range []string{"web", "plain"} {
		go func() {
			defer func() { ended <- struct{}{} }()
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := n.StartAndStop(t, pod); err != nil {
					t.Errorf("after %d ADDs: %s: %v", started.Load(), pod, err)
					started.Store(1 << 30)
					return
				}
				started.Add(1)
			}
		}()
	}
	for i := range 6 {
		a.Stop(t)
		a = startRelease(i + 1)
		a.Ready(t)
		before := started.Load()
		lab.Eventually(t, func() error {
			if now := started.Load(); now < before+4 {
				return fmt.Errorf("%d pods started under this agent, want 4", now-before)
			}
			return nil
		})
	}
	close(stop)
	for range 2 {
		<-ended
	}
	lab.Check(t, old.Stop(t))
}

// TestNewerKeys downgrades to a release that does not know all keys of the entry:
// pods start with that entry, and the agent replaces it.
func TestNewerKeys(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.PreparePods(t)
	n.Start(t, "--mode", "insert").StopOnceReady(t)
	list := strings.Replace(files(t, n.NetDir)["/"+machine.PrimaryName], `"type": "capture-cni",`, `"type": "capture-cni", "ofTheFuture": {"x": [1]},`, 1)
	n.Write(t, machine.PrimaryName, list)
	lab.Check(t, n.StartAndStop(t, "web"))
	lab.Check(t, n.StartAndStop(t, "plain"))
	n.Start(t, "--mode", "insert").Ready(t)
	if got := files(t, n.NetDir)["/"+machine.PrimaryName]; strings.Contains(got, "ofTheFuture") {
		t.Errorf("the entry is still %s", got)
	}
}
