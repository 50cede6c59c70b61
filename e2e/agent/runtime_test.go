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
)

// containerd is as much of a runtime as the agent asks: what it has loaded,
// which pods run. As the real one it loads again when a file of the folder is
// written, renamed or removed, and takes no notice of folders within.
type containerd struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	netDir  string
	dropIns bool         // whether its libcni reads them
	meshed  atomic.Bool  // whether a captured pod runs
	hangs   atomic.Bool  // whether it leaves those without an answer who ask what it has loaded
	fails   atomic.Int32 // how many of them it fails first
	late    atomic.Int64 // how long it thinks about who it is, in nanoseconds

	mu     sync.Mutex
	loaded cniConfig
}

// cniConfig is what containerd tells of it.
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
		if event.Op&(fsnotify.Write|fsnotify.Rename|fsnotify.Remove) != 0 {
			c.load()
		}
	}
}

func (c *containerd) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	time.Sleep(time.Duration(c.late.Load()))
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "containerd", RuntimeVersion: "v2", RuntimeApiVersion: "v1"}, nil
}

// Status tells what is loaded as containerd does.
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

// serve answers at a socket until the test ends.
func (n *node) serveRuntime(t *testing.T, dropIns bool) (c *containerd, socket string) {
	t.Helper()
	c = &containerd{netDir: n.netDir, dropIns: dropIns}
	watcher, err := fsnotify.NewWatcher()
	check(t, err)
	check(t, watcher.Add(n.netDir))
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
	check(t, err)
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, c)
	go func() { _ = server.Serve(listener) }() // until Stop
	t.Cleanup(server.Stop)
}

// TestAuto uses a drop-in where the runtime is seen to load it, and edits the
// primary's list where it is not; an agent that comes later decides the same.
func TestAuto(t *testing.T) {
	t.Parallel()
	for dropIns, untouched := range map[bool]bool{true: true, false: false} {
		n := newNode(t)
		_, socket := n.serveRuntime(t, dropIns)
		for range 2 {
			a := n.start(t, "--mode", "auto", "--cri-socket", socket)
			a.ready(t)
			if got := files(t, n.netDir)["/"+primaryName] == kindnet; got != untouched {
				t.Errorf("drop-ins are loaded: %v; the primary's list is untouched: %v", dropIns, got)
			}
			if _, found := files(t, n.netDir)["/kindnet/capture-cni.conf"]; found != dropIns {
				t.Errorf("drop-ins are loaded: %v; there is one: %v", dropIns, found)
			}
			a.stop(t)
		}
	}
}

// TestAutoInDoubt decides nothing on what is no answer: neither a runtime that is
// too busy to give one nor an agent that ends before it has it is a reason to edit
// a list that need not be edited.
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
	eventually(t, func() (os.FileInfo, error) { return os.Stat(n.netDir + "/kindnet/capture-cni.conf") })
	a.stop(t)
	expectUntouched("ended in doubt")
	c.hangs.Store(false)
	c.fails.Store(3)
	c.late.Store(int64(3 * time.Second))
	a = n.start(t, "--mode", "auto", "--cri-socket", socket)
	a.ready(t)
	expectUntouched("after three seconds and three failures")
	a.stop(t)
}

// TestAutoWaitsForTheRuntime decides nothing before the runtime answers, however
// long that takes, and goes by its answer then.
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
				eventually(t, func() (string, error) {
					if log := a.log.String(); !strings.Contains(log, "whether the runtime loads a drop-in is not known yet") {
						return "", &unexpected{"an agent in doubt", log}
					}
					return a.ready(t, http.StatusServiceUnavailable), nil
				})
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

// TestReadinessAsksTheRuntime finds the disk right and the runtime wrong.
func TestReadinessAsksTheRuntime(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	_, socket := n.serveRuntime(t, false)
	a := n.start(t, "--mode", "dropin", "--cri-socket", socket) // which this runtime does not read
	a.ready(t, http.StatusServiceUnavailable)
	eventually(t, func() (string, error) { return "", contains(a, "the runtime has not loaded our entry") })
	out, err := n.command("verify", "--mode", "dropin", "--cri-socket", socket, "-o", "json")
	if err == nil || !strings.Contains(out, `"part": "runtime"`) {
		t.Errorf("verify: %v: %s", err, out)
	}
}

// TestAbsentAsksTheRuntime leaves captured pods their plugin, in every mode.
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
		eventually(t, func() (string, error) {
			return "", contains(b, "1 captured pods still run on the node (shop/web)")
		})
		if got, _ := n.loaded(); !strings.Contains(got, "capture-cni") {
			t.Errorf("mode %s: it cleaned all the same: %q", mode, got)
		}
		n.expectSecrets(t)
		b.stop(t)
		c.meshed.Store(false)
		n.start(t, "--mode", mode, "--cri-socket", socket, "--state", "absent").ready(t)
		if got, _ := n.loaded(); strings.Contains(got, "capture-cni") {
			t.Errorf("mode %s: left: %q", mode, got)
		}
	}
}
