// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
)

// rewrite has somebody write the primary's list at every interval, as its
// installer does, in one step.
func (n *node) rewrite(t *testing.T, interval, total time.Duration) (times int) {
	t.Helper()
	for start := time.Now(); time.Since(start) < total; time.Sleep(interval) {
		temp := filepath.Join(n.dir, "rewritten")
		check(t, os.WriteFile(temp, []byte(kindnet), 0o644))
		check(t, os.Rename(temp, filepath.Join(n.netDir, primaryName)))
		times++
	}
	return times
}

// TestFight has a writer that never gives in: it is named and counted, and
// answered ever more slowly; then it stops, and our entry is back.
func TestFight(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	a := n.start(t, "--mode", "insert")
	a.ready(t)
	times := n.rewrite(t, 200*time.Millisecond, 60*time.Second)
	var repairs int
	_, body := a.get("/metrics")
	for line := range strings.Lines(body) {
		_, _ = fmt.Sscanf(line, "capture_cni_entry_repairs_total %d", &repairs)
	}
	t.Logf("%d rewrites, %d repairs", times, repairs)
	if repairs < 6 || repairs > 15 {
		t.Errorf("%d rewrites were answered %d times, want 6 to 15", times, repairs)
	}
	check(t, metric(a, `capture_cni_entry_contended{writer="ptp"} 1`))
	if !strings.Contains(a.log.String(), "writer=ptp") {
		t.Errorf("the log does not name the writer: %s", a.log)
	}
	for deadline := time.Now().Add(40 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		got, err := n.loaded()
		if err == nil && strings.Contains(got, "capture-cni") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after the fight a runtime would call %q (%v)", got, err)
		}
	}
}

// TestOwnedIsNeverLost looks at what a runtime would call all through a fight:
// a list of our own is not the writer's to take.
func TestOwnedIsNeverLost(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t, "--mode", "owned").ready(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.rewrite(t, 50*time.Millisecond, 5*time.Second)
	}()
	for looks := 0; ; looks++ {
		select {
		case <-done:
			t.Logf("looked %d times", looks)
			return
		default:
			if got, err := n.loaded(); err != nil || !strings.HasSuffix(got, "capture-cni") {
				t.Fatalf("a runtime would call %q (%v)", got, err)
			}
		}
	}
}

// TestDropInComesBack puts back what somebody deletes, of the file or of the
// whole folder.
func TestDropInComesBack(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	a := n.start(t, "--mode", "dropin")
	a.ready(t)
	folder := n.netDir + "/kindnet"
	for i, remove := range []func() error{
		func() error { return os.Remove(folder + "/capture-cni.conf") },
		func() error { return os.Rename(folder, n.dir+"/gone") },
		func() error { return os.Remove(folder + "/capture-cni.conf") },
	} {
		check(t, remove())
		t.Logf("removal %d", i)
		eventually(t, func() (string, error) { return "", exists(folder + "/capture-cni.conf") })
	}
}

func exists(path string) error {
	_, err := os.Stat(path)
	return err
}

// TestNewerKeys goes back to a release that does not know all keys of the
// entry: pods start with it as it is, and the agent writes its own.
func TestNewerKeys(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.otherPlugins(t)
	a := n.start(t, "--mode", "insert")
	a.ready(t)
	a.stop(t)
	list := strings.Replace(files(t, n.netDir)["/"+primaryName], `"type": "capture-cni",`, `"type": "capture-cni", "ofTheFuture": {"x": [1]},`, 1)
	n.write(t, primaryName, list)
	check(t, n.add(t, "web"))
	check(t, n.add(t, "plain"))
	n.start(t, "--mode", "insert").ready(t)
	if got := files(t, n.netDir)["/"+primaryName]; strings.Contains(got, "ofTheFuture") {
		t.Errorf("the entry is still %s", got)
	}
}

// fakePlugin is an interface plugin, or any other one, that makes nothing.
const fakePlugin = `#!/bin/sh
case "$CNI_COMMAND" in
ADD) echo '{"cniVersion": "0.3.1", "ips": [{"version": "4", "address": "10.77.0.2/32"}]}' ;;
esac
`

// started is a pod that a runtime has set up, with the list of that moment: it
// will be ended by that list, too, whatever came since.
type started struct {
	host    *lab.Host
	cni     *libcni.CNIConfig
	list    *libcni.NetworkConfigList
	runtime *libcni.RuntimeConf
}

// begin has libcni do what a runtime does with what it would load.
func (n *node) begin(t *testing.T, pod string) (*started, error) {
	t.Helper()
	host := sandbox(t)
	files, err := libcni.ConfFiles(n.netDir, []string{".conf", ".conflist"})
	check(t, err)
	list, err := libcni.NetworkConfFromFile(files[0])
	if err != nil {
		return nil, err
	}
	s := &started{host: host, list: list, cni: libcni.NewCNIConfigWithCacheDir([]string{n.binDir}, n.dir+"/cache", nil)}
	s.runtime = &libcni.RuntimeConf{
		ContainerID: filepath.Base(host.Path()), NetNS: host.Path(), IfName: "eth0",
		Args: [][2]string{{"K8S_POD_NAMESPACE", "shop"}, {"K8S_POD_NAME", pod}, {"K8S_POD_UID", "6c1f8c3e-0b7a-4f0e-9d53-2f1f5a1d9f01"}},
	}
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	if _, err := s.cni.AddNetworkList(ctx, list, s.runtime); err != nil {
		return nil, err
	}
	return s, s.expectCaptured(pod == "web")
}

func (s *started) expectCaptured(want bool) error {
	return s.host.Do(func() error {
		state, err := netfilter.Inspect()
		if err == nil && (state.Stamp != "") != want {
			err = fmt.Errorf("captured is not %v", want)
		}
		return err
	})
}

func (s *started) end(t *testing.T) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	if err := s.cni.DelNetworkList(ctx, s.list, s.runtime); err != nil {
		return err
	}
	if err := s.expectCaptured(false); err != nil {
		return err
	}
	return s.host.Close()
}

// add begins and ends a pod.
func (n *node) add(t *testing.T, pod string) error {
	t.Helper()
	s, err := n.begin(t, pod)
	if err != nil {
		return err
	}
	return s.end(t)
}

// otherPlugins are what else the primary's list calls.
func (n *node) otherPlugins(t *testing.T) {
	t.Helper()
	for _, name := range []string{"ptp", "portmap"} {
		check(t, os.WriteFile(filepath.Join(n.binDir, name), []byte(fakePlugin), 0o755))
	}
	n.pod("web", true)
	n.pod("plain", false)
}

// TestBoot empties /run, and has the primary write its list before the agent
// is there: in the modes for which that is no loss, pods are captured.
func TestBoot(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"owned", "dropin", "insert"} {
		n := newNode(t)
		n.otherPlugins(t)
		a := n.start(t, "--mode", mode)
		a.ready(t)
		check(t, n.add(t, "web"))
		check(t, a.Process.Kill())
		_ = a.Wait()
		check(t, os.RemoveAll(n.runDir))
		n.write(t, primaryName, kindnet)
		if err := n.add(t, "web"); (err == nil) != (mode != "insert") {
			t.Errorf("mode %s, after a boot: %v", mode, err)
		}
		start := time.Now()
		n.start(t, "--mode", mode).ready(t)
		t.Logf("mode %s: ready again after %s", mode, time.Since(start).Round(time.Millisecond))
		check(t, n.add(t, "web"))
	}
}

// TestUpgrade goes from one release to the next and back while pods start and
// end: none fails, and no meshed one starts uncaptured.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.otherPlugins(t)
	netConf := filepath.Join(t.TempDir(), "netconf.json")
	check(t, os.WriteFile(netConf, []byte(`{"logLevel": "debug", "lookupTimeout": "20s"}`), 0o600))
	releases := [][]string{{"--mode", "insert"}, {"--mode", "insert", "--plugin", otherPlugin(t), "--netconf", netConf}}
	a := n.start(t, releases[0]...)
	a.ready(t)
	old, err := n.begin(t, "web")
	check(t, err)
	stop, adds := make(chan struct{}), make(chan int)
	for _, pod := range []string{"web", "plain"} {
		go func() {
			count := 0
			defer func() { adds <- count }()
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := n.add(t, pod); err != nil {
					t.Errorf("after %d ADDs of %s: %v", count, pod, err)
					return
				}
				count++
			}
		}()
	}
	for i := range 6 {
		a.stop(t)
		a = n.start(t, releases[(i+1)%2]...)
		a.ready(t)
		time.Sleep(300 * time.Millisecond)
	}
	close(stop)
	if total := <-adds + <-adds; total < 20 {
		t.Errorf("only %d pods started meanwhile", total)
	}
	check(t, old.end(t))
}
