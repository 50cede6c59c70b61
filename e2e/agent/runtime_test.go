// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// containerd is a runtime with what the agent requests: which list is loaded,
// which pods run. Like the real one it reloads when a file of the directory is
// written, renamed or removed, and does not watch subdirectories.
type containerd struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	netDir  string
	dropIns bool        // its libcni reads them
	meshed  atomic.Bool // a captured pod runs
	name    string      // of the runtime, and its version
	version string
	tried   atomic.Bool  // the directory of a drop-in was created
	hangs   atomic.Bool  // Status does not answer
	fails   atomic.Int32 // how many calls of Status fail first
	delay   atomic.Int64 // of Version, in nanoseconds
	loading atomic.Int64 // of a changed list, in nanoseconds

	mu     sync.Mutex
	loaded cniConfig
}

// cniConfig is the CNI configuration as containerd reports it.
type cniConfig struct {
	PluginDirs       []string
	PluginConfDir    string
	PluginMaxConfNum int
	Networks         []network
}

type network struct {
	Config struct {
		Name    string
		Plugins []map[string]any
		Source  string
	}
}

func (c *containerd) load() {
	loaded := cniConfig{PluginDirs: []string{filepath.Dir(c.netDir) + "/bin"}, PluginConfDir: c.netDir, PluginMaxConfNum: 1}
	if files, err := libcni.ConfFiles(c.netDir, []string{".conflist"}); err == nil && len(files) > 0 {
		list, err := libcni.NetworkConfFromFile(files[0])
		if !c.dropIns {
			content, _ := os.ReadFile(files[0])
			list, err = libcni.NetworkConfFromBytes(content)
		}
		if err == nil {
			var n network
			n.Config.Name = list.Name
			for _, plugin := range list.Plugins {
				n.Config.Plugins = append(n.Config.Plugins, map[string]any{"Network": map[string]string{"type": plugin.Network.Type}})
			}
			loaded.Networks = append(loaded.Networks, n)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loaded = loaded
}

func (c *containerd) watch(watcher *fsnotify.Watcher) {
	for event := range watcher.Events {
		if event.Has(fsnotify.Create) && filepath.Ext(event.Name) == "" {
			c.tried.Store(true)
		}
		if event.Op&(fsnotify.Write|fsnotify.Rename|fsnotify.Remove) != 0 {
			time.Sleep(time.Duration(c.loading.Load()))
			c.load()
		}
	}
}

func (c *containerd) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	time.Sleep(time.Duration(c.delay.Load()))
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: c.name, RuntimeVersion: c.version, RuntimeApiVersion: "v1"}, nil
}

// Status reports what is loaded in containerd's form.
func (c *containerd) Status(ctx context.Context, _ *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	if c.hangs.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if c.fails.Add(-1) >= 0 {
		return nil, errors.New("too busy")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	text, err := json.Marshal(c.loaded)
	ready := &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{{Type: "RuntimeReady", Status: true}, {Type: "NetworkReady", Status: true}}}
	return &runtimeapi.StatusResponse{Status: ready, Info: map[string]string{"cniconfig": string(text)}}, err
}

func (c *containerd) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	answer := &runtimeapi.ListPodSandboxResponse{}
	if c.meshed.Load() {
		answer.Items = []*runtimeapi.PodSandbox{{
			Metadata:    &runtimeapi.PodSandboxMetadata{Namespace: "shop", Name: "web"},
			Annotations: map[string]string{"sidecar.istio.io/status": "{}"},
		}}
	}
	return answer, nil
}

// serveRuntime serves a runtime at a socket until the test ends.
func (n *node) serveRuntime(t *testing.T, dropIns bool) (c *containerd, socket string) {
	t.Helper()
	c = &containerd{netDir: n.netDir, dropIns: dropIns, name: "containerd", version: "v2.1.0"}
	watcher, err := fsnotify.NewWatcher()
	lab.Check(t, err)
	lab.Check(t, watcher.Add(n.netDir))
	t.Cleanup(func() { _ = watcher.Close() })
	c.load()
	go c.watch(watcher)
	socket = filepath.Join(t.TempDir(), "cri.sock")
	c.serve(t, socket)
	return c, socket
}

func (c *containerd) serve(t *testing.T, socket string) {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	lab.Check(t, err)
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, c)
	go func() { _ = server.Serve(listener) }() // until Stop
	t.Cleanup(server.Stop)
}

// TestAuto uses a drop-in where the runtime loads it, and edits the primary's
// list where it does not; the next agent decides the same.
func TestAuto(t *testing.T) {
	t.Parallel()
	for dropIns, untouched := range map[bool]bool{true: true, false: false} {
		n := newNode(t)
		c, socket := n.serveRuntime(t, dropIns)
		for range 2 {
			a := n.start(t, "--mode", "auto", "--cri-socket", socket)
			a.ready(t)
			if got := files(t, n.netDir)["/"+primaryName] == kindnet; got != untouched {
				t.Errorf("drop-ins are loaded: %v; the primary's list is untouched: %v", dropIns, got)
			}
			if !c.tried.Load() {
				t.Error("the agent did not try a drop-in")
			}
			if _, found := files(t, n.netDir)["/kindnet/capture-cni.conf"]; found != dropIns {
				t.Errorf("drop-ins are loaded: %v; there is one: %v", dropIns, found)
			}
			a.stop(t)
		}
	}
}

// TestAutoWithoutTrial places no drop-in, not even for a moment, where the runtime would
// not load it or does not report what it has loaded.
func TestAutoWithoutTrial(t *testing.T) {
	t.Parallel()
	for _, runtime := range []struct{ name, version string }{{"containerd", "v2.0.7"}, {"cri-o", "1.34.0"}} {
		n := newNode(t)
		c, socket := n.serveRuntime(t, true)
		c.name, c.version = runtime.name, runtime.version
		for _, program := range []string{"ptp", "portmap"} { // without them CRI-O skips the list
			lab.Check(t, os.WriteFile(filepath.Join(n.binDir, program), nil, 0o755))
		}
		a := n.start(t, "--mode", "auto", "--cri-socket", filepath.Join(n.dir, "missing.sock"), "--cri-socket", socket)
		a.ready(t)
		a.waitForLog(t, fmt.Sprintf("msg=\"found the container runtime\" name=%s version=%s socket=%s", runtime.name, runtime.version, socket))
		lab.Check(t, expectMetric(a, fmt.Sprintf("capture_cni_runtime_info{name=%q,socket=%q,version=%q} 1", runtime.name, socket, runtime.version)))
		a.stop(t)
		if c.tried.Load() {
			t.Errorf("%s %s: the agent tried a drop-in", runtime.name, runtime.version)
		}
		if got := files(t, n.netDir)["/"+primaryName]; got == kindnet {
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
	c, socket := n.serveRuntime(t, true)
	expectUntouched := func(when string) {
		t.Helper()
		if got := files(t, n.netDir)["/"+primaryName]; got != kindnet {
			t.Errorf("%s, the primary's list is %s", when, got)
		}
	}
	c.hangs.Store(true)
	a := n.start(t, "--mode", "auto", "--cri-socket", socket)
	lab.Eventually(t, func() error { return exists(n.netDir + "/kindnet/capture-cni.conf") })
	a.stop(t)
	expectUntouched("ended before the answer")
	expectDropIn := func(when string) {
		t.Helper()
		a := n.start(t, "--mode", "auto", "--cri-socket", socket)
		a.ready(t)
		expectUntouched(when)
		a.stop(t)
	}
	c.hangs.Store(false)
	c.fails.Store(3)
	c.delay.Store(int64(3 * time.Second))
	expectDropIn("after three seconds and three failures")
	lab.Check(t, os.RemoveAll(n.netDir+"/kindnet"))
	c.delay.Store(0)
	c.loading.Store(int64(8 * time.Second))
	expectDropIn("after a runtime took eight seconds to load the drop-in")
}

// TestAutoWaitsForTheRuntime chooses no mode before the runtime answers, however
// long that takes.
func TestAutoWaitsForTheRuntime(t *testing.T) {
	t.Parallel()
	for name, startsLate := range map[string]bool{"starts late": true, "hangs": false} {
		for _, dropIns := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s drop-ins %v", name, dropIns), func(t *testing.T) {
				t.Parallel()
				n := newNode(t)
				c, socket := n.serveRuntime(t, dropIns)
				if startsLate {
					socket += ".late"
				}
				c.hangs.Store(true)
				a := n.start(t, "--mode", "auto", "--cri-socket", socket)
				a.waitForLog(t, "the runtime has not reported yet whether it loads a drop-in")
				a.ready(t, http.StatusServiceUnavailable)
				if got := files(t, n.netDir)["/"+primaryName]; got != kindnet {
					t.Errorf("without an answer, the primary's list is %s", got)
				}
				c.hangs.Store(false)
				if startsLate {
					c.serve(t, socket)
				}
				a.ready(t)
				if got := files(t, n.netDir)["/"+primaryName] == kindnet; got != dropIns {
					t.Errorf("the primary's list is untouched: %v", got)
				}
			})
		}
	}
}

// TestReadinessAsksTheRuntime has the entry on disk, and a runtime that has not
// loaded it: the agent is not ready.
func TestReadinessAsksTheRuntime(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	_, socket := n.serveRuntime(t, false)
	a := n.start(t, "--mode", "dropin", "--cri-socket", socket) // which this runtime does not read
	a.ready(t, http.StatusServiceUnavailable)
	lab.Eventually(t, func() error { return expectReadyz(a, "the runtime has not loaded the entry") })
	out, err := n.command("verify", "--mode", "dropin", "--cri-socket", socket, "-o", "json")
	if err == nil || !strings.Contains(out, `"part": "runtime"`) {
		t.Errorf("verify: %v: %s", err, out)
	}
}

// TestAbsentAsksTheRuntime does not clean a node on which a captured pod runs, in
// any mode.
func TestAbsentAsksTheRuntime(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"insert", "owned", "dropin"} {
		n := newNode(t)
		c, socket := n.serveRuntime(t, true)
		c.meshed.Store(true)
		a := n.start(t, "--mode", mode, "--cri-socket", socket)
		a.ready(t)
		a.stop(t)
		b := n.start(t, "--mode", mode, "--cri-socket", socket, "--state", "absent")
		lab.Eventually(t, func() error {
			return expectReadyz(b, "1 captured pods still run on the node (shop/web)")
		})
		if got, _ := n.loadedTypes(); !strings.Contains(got, "capture-cni") {
			t.Errorf("mode %s: the agent cleaned the node: %q", mode, got)
		}
		n.expectRootOnly(t)
		b.stop(t)
		c.meshed.Store(false)
		n.start(t, "--mode", mode, "--cri-socket", socket, "--state", "absent").ready(t)
		if got, _ := n.loadedTypes(); strings.Contains(got, "capture-cni") {
			t.Errorf("mode %s: left: %q", mode, got)
		}
	}
}
