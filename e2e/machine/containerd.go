// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
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

// Containerd is a runtime with what the agent requests: which list is loaded,
// which pods run. Like the real one it reloads when a file of the directory is
// written, renamed or removed, and does not watch subdirectories.
type Containerd struct {
	netDir  string
	dropIns bool // its libcni reads them
	Silent  bool // Status does not contain what is loaded
	Named
	Asked   atomic.Int64 // how often Version was called
	Tried   atomic.Bool  // the directory of a drop-in was created
	Hangs   atomic.Bool  // Status does not answer
	Fails   atomic.Int32 // how many calls of Status fail first
	Delay   atomic.Int64 // of Version, in nanoseconds
	Loading atomic.Int64 // of a changed list, in nanoseconds

	mu       sync.Mutex
	loaded   cniConfig
	reported []Network // by Report, whatever is loaded
}

// cniConfig is the CNI configuration as containerd reports it.
type cniConfig struct {
	PluginDirs       []string
	PluginConfDir    string
	PluginMaxConfNum int
	Networks         []Network
}

// Network is a loaded list.
type Network struct {
	Config struct {
		Name    string
		Plugins []map[string]any
		Source  string
	}
}

func (c *Containerd) load() {
	loaded := cniConfig{PluginDirs: []string{filepath.Dir(c.netDir) + "/bin"}, PluginConfDir: c.netDir, PluginMaxConfNum: 1}
	if files, err := libcni.ConfFiles(c.netDir, []string{".conflist"}); err == nil && len(files) > 0 {
		list, err := libcni.NetworkConfFromFile(files[0])
		if !c.dropIns {
			content, _ := os.ReadFile(files[0])
			list, err = libcni.NetworkConfFromBytes(content)
		}
		if err == nil {
			var n Network
			n.Config.Name = list.Name
			for _, plugin := range list.Plugins {
				n.Config.Plugins = append(n.Config.Plugins, map[string]any{"Network": map[string]string{"type": plugin.Network.Type}})
			}
			loaded.Networks = append(loaded.Networks, n)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reported != nil {
		loaded.Networks = c.reported
	}
	c.loaded = loaded
}

func (c *Containerd) watch(watcher *fsnotify.Watcher) {
	for event := range watcher.Events {
		if event.Has(fsnotify.Create) && filepath.Ext(event.Name) == "" {
			c.Tried.Store(true)
		}
		if event.Op&(fsnotify.Write|fsnotify.Rename|fsnotify.Remove) != 0 {
			time.Sleep(time.Duration(c.Loading.Load()))
			c.load()
		}
	}
}

func (c *Containerd) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	time.Sleep(time.Duration(c.Delay.Load()))
	defer c.Asked.Add(1)
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: c.Runtime, RuntimeVersion: c.Release, RuntimeApiVersion: "v1"}, nil
}

// Status reports what is loaded in containerd's form.
func (c *Containerd) Status(ctx context.Context, _ *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	if c.Hangs.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if c.Fails.Add(-1) >= 0 {
		return nil, errors.New("too busy")
	}
	answer := &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{{Type: "RuntimeReady", Status: true}, {Type: "NetworkReady", Status: true}}}}
	if c.Silent {
		return answer, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	text, err := json.Marshal(c.loaded)
	answer.Info = map[string]string{"cniconfig": string(text)}
	return answer, err
}

func (c *Containerd) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	return &runtimeapi.ListPodSandboxResponse{}, nil
}

// ServeRuntime serves a runtime at a socket until the test ends.
func (n *Node) ServeRuntime(t *testing.T, dropIns bool) (c *Containerd, socket string) {
	t.Helper()
	c = &Containerd{netDir: n.NetDir, dropIns: dropIns, Named: Named{Runtime: "containerd", Release: "v2.1.0"}}
	watcher, err := fsnotify.NewWatcher()
	lab.Check(t, err)
	lab.Check(t, watcher.Add(n.NetDir))
	t.Cleanup(func() { _ = watcher.Close() })
	c.load()
	go c.watch(watcher)
	socket = filepath.Join(t.TempDir(), "cri.sock")
	c.Serve(t, socket)
	return c, socket
}

// Serve serves the runtime at another socket.
func (c *Containerd) Serve(t *testing.T, socket string) {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	lab.Check(t, err)
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, c)
	go func() { _ = server.Serve(listener) }() // until Stop
	t.Cleanup(server.Stop)
}

// Report has the runtime report a network that it has not loaded, also after it loads others.
func (c *Containerd) Report(n Network) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reported = []Network{n}
	c.loaded.Networks = c.reported
}
