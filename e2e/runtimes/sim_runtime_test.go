// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/capture-cni/capture-cni/config"
)

// container is the node's container runtime. It loads its directory by the real code of containerd
// or of CRI-O.
type container struct {
	name      string
	state     string        // "up", "down" or "silent"
	late      time.Duration // between a change of its directory and its loading
	seen      string        // of its directories, at the last look
	events    int           // of its network directory, and not of the subdirectories
	due       time.Time     // when it loads what it has seen
	has       loaded
	isLoaded  bool // what it has seen
	pods      []*runtimeapi.PodSandbox
	added     int // pods
	sandboxes int
	omits     bool // the annotations of pods, when it calls plugins
}

// memory has what a loader makes of a directory, for all histories.
var memory sync.Map

// wouldLoad returns what the runtime makes of its directory at this moment.
func (w *world) wouldLoad() loaded {
	key := [2]string{w.runtime.name + w.sign(w.netDir), w.sign(w.binDir)}
	if found, ok := memory.Load(key); ok {
		return found.(loaded)
	}
	n := node{netDir: w.netDir, bins: []string{w.binDir}}
	found := oracles[w.runtime.name](n, n.bins)
	memory.Store(key, found)
	return found
}

// sign returns the content of a directory.
func (w *world) sign(directory string) string {
	if w.signed != w.generation {
		w.signed, w.signatures = w.generation, map[string]string{}
	}
	if _, isKnown := w.signatures[directory]; !isKnown {
		w.signatures[directory] = fmt.Sprint(w.tree(directory)) // in the order of names
	}
	return w.signatures[directory]
}

// watch has the runtime notice changes of its directory.
func (w *world) watch() {
	r := &w.runtime
	now := fmt.Sprint(r.events)
	if r.name == "cri-o" { // which watches the programs, too
		now += w.sign(w.binDir)
	}
	if now != r.seen {
		r.seen, r.due, r.isLoaded = now, time.Now().Add(r.late), false
	}
	if r.state == "up" && !r.isLoaded && !time.Now().Before(r.due) {
		r.has, r.isLoaded = w.wouldLoad(), true
	}
}

// connection is the CRI socket.
type connection struct{ *world }

func (connection) Close() error { return nil }

func (connection) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, status.Error(codes.Unimplemented, "no streams")
}

// runtimeFault returns the error of a request that the runtime does not answer.
func (w *world) runtimeFault(ctx context.Context) error {
	switch w.runtime.state {
	case "down":
		return status.Error(codes.Unavailable, "connection refused")
	case "silent":
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	}
	return nil
}

// Invoke answers a request as the runtime is at the moment.
func (c connection) Invoke(ctx context.Context, _ string, _, reply any, _ ...grpc.CallOption) error {
	w := c.world
	w.reach("runtime: " + w.runtime.state)
	if w.disk.killed {
		return errKilled
	}
	if err := w.runtimeFault(ctx); err != nil {
		return err
	}
	w.watch()
	w.mayChoose = true
	switch reply := reply.(type) {
	case *runtimeapi.VersionResponse:
		reply.RuntimeName, reply.RuntimeVersion = w.runtime.name, "2.1.0"
	case *runtimeapi.StatusResponse:
		if w.runtime.name == "containerd" {
			reply.Info = map[string]string{"cniconfig": w.cniConfig()}
		}
	case *runtimeapi.ListPodSandboxResponse:
		reply.Items = w.runtime.pods
	default:
		return status.Error(codes.Unimplemented, "not in this model")
	}
	return nil
}

// cniConfig is what containerd reports of what it has loaded.
func (w *world) cniConfig() string {
	type (
		network struct{ Type string }
		plugin  struct{ Network network }
	)
	var plugins []plugin
	for _, kind := range w.runtime.has.Types {
		plugins = append(plugins, plugin{network{kind}})
	}
	var networks []any
	if len(plugins) > 0 {
		networks = append(networks, map[string]any{"Config": map[string]any{"Name": w.runtime.has.Network, "Plugins": plugins}})
	}
	text, _ := json.Marshal(map[string]any{"PluginDirs": []string{w.binDir}, "PluginConfDir": w.netDir, "PluginMaxConfNum": 1, "Networks": networks})
	return string(text)
}

// version is a program of ours: its text runs as a plugin and as capture-cni-lookup.
func version(number string) string { return program + "# " + number + "\n" }

// execute runs a program of ours in process. Its text says whether it works.
func (w *world) execute(_ context.Context, path string, args []string, _ []byte, environment []string) ([]byte, error) {
	if w.disk.killed {
		return nil, errKilled
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(string(text), program) || strings.Contains(string(text), "broken") {
		w.reach("a program that does not run")
		return nil, errors.New("exec format error")
	}
	if slices.Equal(args, []string{"--version"}) {
		return []byte(config.LookupProgram + " v1\n"), nil
	}
	return []byte(`{"cniVersion":"1.0.0","supportedVersions":["0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"]}`), nil
}
