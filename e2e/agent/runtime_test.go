// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
)

// TestAuto uses a drop-in if the runtime loads it, and edits the primary's list if the
// runtime does not report what it has loaded. The next agent decides the same.
// install/node.TestLoadsDropIn has runtimes that take long.
func TestAuto(t *testing.T) {
	t.Parallel()
	for _, silent := range []bool{false, true} {
		n := newNode(t)
		c, socket := n.ServeRuntime(t, true)
		c.Silent = silent
		for range 2 {
			n.Start(t, "--mode", "auto", "--cri-socket", socket).StopOnceReady(t)
			got := files(t, n.NetDir)
			if edited := got["/"+machine.PrimaryName] != machine.Kindnet; edited != silent {
				t.Errorf("silent: %v; the primary's list is edited: %v", silent, edited)
			}
			if _, found := got["/kindnet/capture-cni.conf"]; found == silent {
				t.Errorf("silent: %v; there is a drop-in: %v", silent, found)
			}
			if !c.Tried.Load() {
				t.Error("the agent did not try a drop-in")
			}
		}
	}
}

// TestAutoWithoutTrial places no drop-in, not even for a moment, where the runtime would
// not load it or does not report what it has loaded.
func TestAutoWithoutTrial(t *testing.T) {
	t.Parallel()
	for _, runtime := range []struct{ name, version string }{{"containerd", "v2.0.7"}, {"cri-o", "1.34.0"}} {
		n := newNode(t)
		c, socket := n.ServeRuntime(t, true)
		c.Named = machine.Named{Runtime: runtime.name, Release: runtime.version}
		for _, program := range []string{"ptp", "portmap"} { // without them CRI-O skips the list
			lab.Check(t, lab.WriteProgram(filepath.Join(n.BinDir, program), []byte("#!/bin/sh\n")))
		}
		a := n.StartReady(t, "--mode", "auto", "--cri-socket", filepath.Join(n.Dir, "missing.sock"), "--cri-socket", socket)
		a.WaitForLog(t, fmt.Sprintf("msg=\"found the container runtime\" name=%s version=%s socket=%s", runtime.name, runtime.version, socket))
		lab.Check(t, a.ExpectMetric(fmt.Sprintf("capture_cni_runtime_info{name=%q,socket=%q,version=%q} 1", runtime.name, socket, runtime.version)))
		a.Stop(t)
		if c.Tried.Load() {
			t.Errorf("%s %s: the agent tried a drop-in", runtime.name, runtime.version)
		}
		if got := files(t, n.NetDir)["/"+machine.PrimaryName]; got == machine.Kindnet {
			t.Errorf("%s %s: the list has no entry", runtime.name, runtime.version)
		}
	}
}

// TestAutoInDoubt does not edit a list without an answer of the runtime's: neither
// while the runtime is too busy to answer or to load the drop-in, nor when the agent ends
// before the answer.
func TestAutoInDoubt(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	c, socket := n.ServeRuntime(t, true)
	expectUntouched := func(when string) {
		t.Helper()
		if got := files(t, n.NetDir)["/"+machine.PrimaryName]; got != machine.Kindnet {
			t.Errorf("%s, the primary's list is %s", when, got)
		}
	}
	c.Hangs.Store(true)
	a := n.Start(t, "--mode", "auto", "--cri-socket", socket)
	lab.Eventually(t, func() error { return exists(n.NetDir + "/kindnet/capture-cni.conf") })
	a.Stop(t)
	expectUntouched("ended before the answer")
	expectDropIn := func(when string) {
		t.Helper()
		a := n.StartReady(t, "--mode", "auto", "--cri-socket", socket)
		expectUntouched(when)
		a.Stop(t)
	}
	c.Hangs.Store(false)
	c.Fails.Store(3)
	c.Delay.Store(int64(3 * time.Second)) // longer than the agent waits for this answer
	c.Loading.Store(int64(time.Second))
	expectDropIn("after three failures, and a second until the runtime had loaded the drop-in")
}

// TestReadinessAsksTheRuntime has the entry on disk, and a runtime that has not
// loaded it: the agent is not ready.
func TestReadinessAsksTheRuntime(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	_, socket := n.ServeRuntime(t, false)
	a := n.Start(t, "--mode", "dropin", "--cri-socket", socket) // which this runtime does not read
	a.Ready(t, http.StatusServiceUnavailable)
	a.WaitForReadyz(t, "the runtime has not loaded the entry")
	out, err := n.Command("verify", "--mode", "dropin", "--cri-socket", socket, "-o", "json")
	if err == nil || !strings.Contains(out, `"part": "runtime"`) {
		t.Errorf("verify: %v: %s", err, out)
	}
}
